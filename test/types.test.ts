import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { declarationsOf, examples, firstOf, programOf, programs } from './support/examples.js';
import { installIn } from './support/package.js';
import { temporaryDirectory } from './support/temporary.js';

/** All that the types are for in the long run (DELAYQ_TEST_LONG=1), else the newest. */
const COMPILERS =
  process.env.DELAYQ_TEST_LONG === '1' ? ['typescript-5.4', 'typescript-5.9', 'typescript'] : ['typescript'];

const root = fileURLToPath(new URL('..', import.meta.url));
/** A project with delayq, installed from its tarball. */
const project = temporaryDirectory();

/** All declarations of the package. */
let declarations = '';

beforeAll(() => {
  installIn(project);
  const lib = join(project, 'node_modules/delayq/dist/lib');
  const files = readdirSync(lib, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.d.ts'));
  declarations = files.map((file) => readFileSync(join(lib, file), 'utf8')).join('\n');
});

describe('the types of the library', () => {
  /** Compiles files of the project. Returns what the compiler says. */
  function compile(compiler: string, files: Readonly<Record<string, string>>, options: object): string {
    for (const [name, code] of Object.entries(files)) writeFileSync(join(project, name), code);
    const compilerOptions = {
      ...{ strict: true, noEmit: true, target: 'es2022', skipLibCheck: true, types: ['node'] },
      ...options,
    };
    const config = JSON.stringify({ compilerOptions, files: Object.keys(files) });
    writeFileSync(join(project, 'tsconfig.json'), config);
    const tsc = join(root, 'node_modules', compiler, 'bin/tsc');
    const { stdout, stderr } = spawnSync(process.execPath, [tsc, '-p', project], { encoding: 'utf8' });
    return `${stdout}${stderr}`;
  }

  const esm = Object.fromEntries(programs.map((example, i) => [`example-${i}.mts`, programOf(example)]));
  // Top-level await is only for ES modules.
  const main = (code: string) => code.replace(/^(import .*\n)([\s\S]*)$/, '$1async function main() {\n$2}\nmain();\n');
  const refused = `import { Queue, Worker } from 'delayq';
declare const queue: Queue;
// @ts-expect-error
queue.enqueue({ payload: 1, delay: '15m' });
// @ts-expect-error
new Worker(queue, () => {}, { concurency: 5 });
// @ts-expect-error
new Worker(queue, () => {}, { batch: 5 });`;
  const typed = `import { BatchWorker, JsonText, type PayloadOf, Queue, RawPayload, type Schema, type Task, Worker } from 'delayq';
declare const redis: ConstructorParameters<typeof Queue>[0];
interface Order { orderId: number }
interface Mail { to: string }
const orders = new Queue<Order>(redis, 'orders');
const untyped = new Queue(redis, 'untyped');
orders.enqueue({ payload: { orderId: 42 } });
orders.enqueue([{ payload: JsonText.parse('{}') }, { payload: new RawPayload(new Uint8Array()) }]);
orders.swap('a', { payload: { orderId: 42 } });
// @ts-expect-error
orders.enqueue({ payload: { orderId: '42' } });
// @ts-expect-error
orders.enqueue([{ payload: {} }]);
untyped.enqueue({ payload: 'anything' });

declare const schema: Schema<{ to?: string }, Mail>;
const mails = new Queue(redis, 'mails', { schema });
mails.enqueue({ payload: {} });
// @ts-expect-error
mails.enqueue({ payload: { to: 1 } });
const to = (job: Task<PayloadOf<typeof mails>>): string => job.json().to;

new Worker(orders, async (job) => job.json().orderId.toFixed());
new Worker(mails, to);
new Worker([mails], to, { concurrency: 5 });
new BatchWorker(orders, (jobs) => jobs.map((job) => job.json().orderId.toFixed()), { batch: 5 });
new Worker<Order>(orders, (job) => job.json().orderId.toFixed());
new Worker([orders, mails], (job) => {
  const either: Order | Mail = job.json();
  return 'to' in either ? either.to : either.orderId;
});
new Worker([orders, untyped], (job) => {
  const any: unknown = job.json();
  // @ts-expect-error
  return job.json().orderId;
});
// @ts-expect-error
new Worker(orders, (job) => job.json().to);
// @ts-expect-error
new Worker<Order>(untyped, () => {});
// @ts-expect-error
new Worker(untyped, (job) => job.json().orderId);
new Worker(untyped, async (job) => fetch('http://localhost', { method: 'POST', body: job.payload }));
const some: Worker = new Worker(orders, () => false);
const one: Worker<Order> = new Worker(orders, () => {});
const noted = (queue: Queue): string => queue.name;
noted(orders);`;
  const modules = { ...esm, 'refused.mts': refused, 'typed.mts': typed };
  const cjs = { 'required.cts': main(programOf(firstOf('README.md'))) };

  const settings: [name: string, options: object, files: Readonly<Record<string, string>>][] = [
    ['node16', { module: 'node16' }, { ...modules, ...cjs }],
    ['nodenext, without DOM', { module: 'nodenext', lib: ['es2022'], skipLibCheck: false }, { ...modules, ...cjs }],
    ['bundler', { module: 'esnext', moduleResolution: 'bundler' }, modules],
  ];

  describe.each(COMPILERS)('with %s', (compiler) => {
    it.each(settings)('take all examples of the documents: %s', (_, options, files) => {
      expect(compile(compiler, files, options)).toBe('');
    });
  });

  it.each([
    'Connection',
    'Queue',
    'Inspector',
    'Recurring',
    'Operator',
    'Transfer',
    'Doctor',
    'Auditor',
    'BatchWorker',
  ])('show only what the reference has of %s', (name) => {
    const reference = readFileSync(join(root, 'docs/reference/library.md'), 'utf8');
    const [, body = ''] =
      new RegExp(`^export declare class ${name}\\b[^{]*\\{\n(.*?)^\\}`, 'ms').exec(declarations) ?? [];
    const members = [...body.matchAll(/^ {4}(?:readonly |get |static )?(\w+)[<(:?]/gm)].map(([, member]) => member);
    expect(members).toContain('constructor');
    const unknown = members.filter((member) => !new RegExp(`[.\`]${member}\\b`).test(reference));
    expect(unknown).toEqual(['constructor']);
  });

  it('are those that the reference lists', () => {
    const lists = examples.filter(({ kind }) => kind === 'signatures');
    expect(lists.length).toBeGreaterThan(7);
    const files = Object.fromEntries(lists.map((example, i) => [`list-${i}.mts`, declarationsOf(example)]));
    expect(compile('typescript', files, { module: 'nodenext', noImplicitAny: false })).toBe('');
  });
});
