import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Inspector, type Queue } from '../../src/index.js';
import { connection } from './redis.js';
import { temporaryDirectory } from './temporary.js';

/** A path that no other test uses. */
export const path = () => join(temporaryDirectory(), 'file');

/** Makes an executable script for /bin/sh. */
export function script(text: string): string {
  const file = path();
  writeFileSync(file, `#!/bin/sh\n${text}\n`);
  chmodSync(file, 0o755);
  return file;
}

/** The arguments for a handler that is a line for the shell. */
export const shell = (text: string) => ['--', 'sh', '-c', text];

/** The content of a file; empty if it does not exist. */
export const read = (file: string) => (existsSync(file) ? readFileSync(file, 'utf8') : '');

/** Whether a process runs. A zombie does not. */
export function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/\) Z /.test(read(`/proc/${pid}/stat`));
  } catch {
    return false;
  }
}

const inspector = new Inspector(connection);

/** A job as it is stored. */
export const show = async (queue: Queue, id: string) => (await inspector.show(queue.name, [id]))[0];

/** 0, 1, … n − 1. */
export const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);
