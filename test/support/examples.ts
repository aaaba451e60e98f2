import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as api from '../../src/index.js';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** All documents of the repository, as paths. */
export const documents = readdirSync(root, { recursive: true, encoding: 'utf8', withFileTypes: true })
  .map(({ parentPath, name }) => relative(root, join(parentPath, name)))
  .filter((path) => path.endsWith('.md') && !/(^|\/)(node_modules|dist|\.git)\//.test(path))
  .sort();

export const read = (path: string): string => readFileSync(join(root, path), 'utf8');

/** A block of TypeScript or JavaScript in a document. */
export interface Example {
  /** The document, and the line of the block. */
  readonly at: string;
  readonly code: string;
  /** A program or a part of one; a list of signatures; or a program for other software than delayq. */
  readonly kind: 'program' | 'signatures' | 'foreign';
}

function kindOf(code: string): Example['kind'] {
  const packages = [...code.matchAll(/from '([^'.]+)'/g)].map(([, name = '']) => name);
  if (packages.some((name) => name !== 'delayq' && !name.startsWith('node:'))) return 'foreign';
  return /^(await|import) /m.test(code) ? 'program' : 'signatures';
}

/** All examples in the documents. */
export const examples: readonly Example[] = documents.flatMap((path) => {
  const text = read(path);
  return [...text.matchAll(/^```(?:ts|js|typescript|javascript)\n([\s\S]*?)^```$/gm)].map(
    ({ 1: code = '', index }) => ({
      at: `${path}:${text.slice(0, index).split('\n').length}`,
      code,
      kind: kindOf(code),
    }),
  );
});

/** Those that are programs. */
export const programs = examples.filter(({ kind }) => kind === 'program');

/** The first program of a document. */
export const firstOf = (document: string) => programs.find(({ at }) => at.startsWith(`${document}:`)) as Example;

/** What delayq exports at run time, but for what only its server uses. */
export const NAMES = namesOf(readFileSync(join(root, 'src/index.ts'), 'utf8'));

/** A program of its own: a part of one gets the imports and the connection that it takes for granted. */
export function programOf({ code }: Example): string {
  if (code.includes('import ')) return code;
  return `import { ${NAMES.join(', ')} } from 'delayq';\nconst redis = await connect('redis://127.0.0.1:6379');\n${code}redis.close();\n`;
}

/** Types of the nouns that a list of signatures uses. */
const NOUNS: Readonly<Record<string, string>> = { worker: 'BatchWorker' };
const capital = (word: string) => `${word.charAt(0).toUpperCase()}${word.slice(1)}`;

/**
 * Declarations that compile only if the library has what a list of signatures says: each signature is a type that the
 * function, constructor or method must have. Parameters and members without a type are any.
 */
export function declarationsOf({ code }: Example): string {
  const [, declared] = /^interface (\w+)/.exec(code) ?? [];
  if (declared) {
    return `import type { ${declared} as Real } from 'delayq';
${code}
export const same = (given: Real): ${declared} => given;
export const all = (names: Record<keyof ${declared}, 1>): Record<keyof Real, 1> => names;
`;
  }
  const lines = code
    .replace(/ *\/\/.*$/gm, '')
    .split('\n')
    .filter(Boolean);
  const types = new Set([...code.replace(/\/\/.*/g, '').matchAll(/\b[A-Z]\w+/g)].map(([name]) => name));
  for (const name of ['Promise', 'AsyncIterable', 'AsyncGenerator', 'Partial', 'Buffer']) types.delete(name);
  const imports = new Set([...types, ...Object.values(NOUNS)]);
  const checks = lines.map((line, i) => {
    const [, made, noun = '', member, rest = ''] = /^(new )?(\w+)(?:\.(\w+))?(.*)$/.exec(line) ?? [];
    if (made) {
      imports.add(noun);
      return `const _${i}: { new ${rest.replace(/\)$/, `): ${noun}`)} } = ${noun};`;
    }
    if (member === undefined) {
      imports.add(noun);
      return `const _${i}: { ${rest} } = ${noun};`;
    }
    // JsonText.parse is of the class itself.
    const type = /^[A-Z]/.test(noun) ? `typeof ${noun}` : (NOUNS[noun] ?? capital(noun));
    imports.add(type.replace('typeof ', ''));
    return `declare const n${i}: ${type};\nconst _${i}: { ${member}${rest} } = n${i};`;
  });
  return `import { ${[...imports].map((name) => (Object.hasOwn(api, name) ? name : `type ${name}`)).join(', ')} } from 'delayq';\n${checks.join('\n')}\n`;
}

function namesOf(index: string): string[] {
  const internal = [...index.matchAll(/@internal[^\n]*\nexport \{([^}]+)\}/g)].flatMap(([, names = '']) =>
    names.split(','),
  );
  const hidden = internal.map((name) => name.trim());
  return Object.keys(api).filter((name) => !hidden.includes(name));
}
