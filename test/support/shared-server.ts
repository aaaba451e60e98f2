import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { TestProject } from 'vitest/node';
import { Cluster } from './cluster.js';
import { Leftovers } from './leftovers.js';
import { limitedUrl, refusals } from './limited-user.js';
import { Server } from './server.js';

declare module 'vitest' {
  interface ProvidedContext {
    redisUrl: string;
    redisSocket: string;
    /** What comes first in PATH: the programs of the server under test, if it is not the system's. */
    serverPath: string;
  }
}

/**
 * One Redis for all tests that do not affect others; each test uses its own queue. With DELAYQ_TEST_TOPOLOGY=cluster it
 * is a cluster of three masters; `redisSocket` is a single server in any case. With DELAYQ_TEST_USER=acl delayq may do only
 * what `doctor --acl` prints. With DELAYQ_TEST_SERVER=/path/to/redis-server (or valkey-server), that program is every
 * `redis-server` of the run. Fails in the end if the tests have left anything behind.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { DELAYQ_TEST_TOPOLOGY: topology = 'single' } = process.env;
  if (topology !== 'single' && topology !== 'cluster')
    throw new Error(`DELAYQ_TEST_TOPOLOGY must be single or cluster, not ${JSON.stringify(topology)}`);
  const leftovers = new Leftovers();
  const programs = linksTo(process.env.DELAYQ_TEST_SERVER);
  project.provide('serverPath', programs ? `${programs}:` : '');
  // Also for the workers, which inherit it.
  if (programs) process.env.PATH = `${programs}:${process.env.PATH}`;
  const server = await Server.start();
  const cluster = topology === 'cluster' ? await Cluster.start() : undefined;
  const { url, nodes = [server] } = cluster ?? { url: server.url };
  project.provide('redisUrl', process.env.DELAYQ_TEST_USER === 'acl' ? await limitedUrl(url, nodes) : url);
  project.provide('redisSocket', server.socket);
  return async () => {
    const refused = await refusals(nodes);
    await server.stop();
    await cluster?.stop();
    removeCaches();
    // Newer Nodes compile npm and tsc into it.
    rmSync(join(tmpdir(), 'node-compile-cache'), { recursive: true, force: true });
    if (programs) rmSync(programs, { recursive: true });
    if (process.env.DELAYQ_TEST_KILLS) removeTemporary();
    const left = await leftovers.end();
    // vitest prints what is thrown here, and exits 0.
    if (refused.length + left.length > 0) process.exitCode = 1;
    if (refused.length > 0) throw new Error(`Redis refused what delayq does: ${refused.join(', ')}`);
    if (left.length > 0) throw new Error(`the tests have left behind: ${left.join(', ')}`);
  };
}

/**
 * Makes a directory in which a server program is called redis-server, and those that lie beside it redis-cli and so on.
 * Undefined without a program.
 */
function linksTo(program: string | undefined): string | undefined {
  if (!program) return undefined;
  const path = resolve(program);
  console.log(`tests run on ${execFileSync(path, ['--version'], { encoding: 'utf8' }).trim()}`);
  const directory = mkdtempSync(join(tmpdir(), 'delayq-test-programs-'));
  for (const name of ['server', 'cli', 'check-aof', 'sentinel']) {
    const beside = path.replace(/server(?=[^/]*$)/, name);
    if (existsSync(beside)) symlinkSync(beside, join(directory, `redis-${name}`));
  }
  return directory;
}

/** Removes what commands that were killed have left: their own temporary files, nothing else. */
function removeTemporary(): void {
  for (const name of readdirSync(tmpdir()))
    if (name.startsWith('delayq-')) rmSync(join(tmpdir(), name), { recursive: true, force: true });
}

/** Removes the compiled code that bin/start.js has cached for the runs of the tests. */
function removeCaches(): void {
  const directory = fileURLToPath(new URL('../../dist/cli/', import.meta.url));
  for (const file of readdirSync(directory)) if (file.includes('.cache')) rmSync(directory + file, { force: true });
}
