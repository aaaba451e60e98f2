import { writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { RawPayload } from '../../../src/index.js';
import { begin, delayq, linesOf } from '../../support/cli.js';
import { alive, path, read, script, shell, show, upTo } from '../../support/handlers.js';
import { admin, freshQueue, key, timePasses } from '../../support/redis.js';
import { until } from '../../support/until.js';

/** A command that notes what it gets: a line for each job. */
function notes() {
  const log = path();
  const line = '$DELAYQ_QUEUE $DELAYQ_ID $DELAYQ_REASON $DELAYQ_ATTEMPT $DELAYQ_ERROR $DELAYQ_ATTR_TENANT';
  return { command: `echo "${line}" "$(od -An -c | tr -d ' \\n')" >> ${log}`, lines: () => linesOf(read(log)).sort() };
}

const FORMS: [name: string, form: (text: string) => string[]][] = [
  ['a process for each job', (text) => shell(text)],
  ['a process that stays', (text) => ['--stay', ...shell(`while read -r line; do (${text}); echo dead $? >&3; done`)]],
  ['a command for each batch', (text) => ['--pipe', text]],
];

describe.concurrent('--on-dead', () => {
  it('runs once for each job that dies, with its payload byte for byte, and not for a retry or a job that is done', async () => {
    const queue = freshQueue();
    const bytes = Buffer.from([0, 255, 10, 13, 128, 0]);
    await queue.enqueue([
      { id: 'dies', payload: new RawPayload(bytes), tries: 1, attributes: { tenant: 'x' } },
      { id: 'empty', payload: new RawPayload(Buffer.alloc(0)), tries: 1 },
      { id: 'retried', payload: 1 },
      { id: 'refused', payload: 1 },
      { id: 'done', payload: 1 },
    ]);
    const [log, copy] = [path(), path()];
    const line = '"$DELAYQ_QUEUE $DELAYQ_ID $DELAYQ_REASON $DELAYQ_ATTEMPT $DELAYQ_ERROR|$DELAYQ_ATTR_TENANT"';
    const command = `cat > ${copy}.$DELAYQ_ID; echo ${line} >> ${log}`;
    const handler = shell('case $DELAYQ_ID in done) ;; refused) exit 65;; *) echo broken >&2; exit 3;; esac');
    expect(await delayq(['drain', '-q', '--on-dead', command, queue.name, ...handler])).toMatchObject({
      code: 1,
      stdout: '',
    });
    const { name } = queue;
    expect(linesOf(read(log)).sort()).toEqual([
      `${name} dies failed 1 exit 3: broken|x`,
      `${name} empty failed 1 exit 3: broken|`,
      `${name} refused refused 1 exit 65|`,
    ]);
    expect(Buffer.from(read(`${copy}.empty`))).toEqual(Buffer.alloc(0));
    expect(readBytes(`${copy}.dies`)).toEqual(bytes);
    await timePasses(name, 3_600_000);
    await delayq(['drain', '-q', '--on-dead', command, name, ...handler]);
    expect(linesOf(read(log))).toHaveLength(3);
  });
});
