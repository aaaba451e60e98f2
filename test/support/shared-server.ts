import { readdirSync, rmSync } from 'node:fs';
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
  }
}

/**
 * One Redis for all tests that do not affect others; each test uses its own queue. With DELAYQ_TEST_TOPOLOGY=cluster it
 * is a cluster of three masters; `redisSocket` is a single server in any case. With DELAYQ_TEST_USER=acl delayq may do only
 * what `doctor --acl` prints. Fails in the end if the tests have left anything behind.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { DELAYQ_TEST_TOPOLOGY: topology = 'single' } = process.env;
  if (topology !== 'single' && topology !== 'cluster')
    throw new Error(`DELAYQ_TEST_TOPOLOGY must be single or cluster, not ${JSON.stringify(topology)}`);
  const leftovers = new Leftovers();
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
    const left = leftovers.end();
    if (refused.length > 0) throw new Error(`Redis refused what delayq does: ${refused.join(', ')}`);
    if (left.length > 0) throw new Error(`the tests have left behind: ${left.join(', ')}`);
  };
}

/** Removes the compiled code that bin/start.js has cached for the runs of the tests. */
function removeCaches(): void {
  const directory = fileURLToPath(new URL('../../dist/cli/', import.meta.url));
  for (const file of readdirSync(directory)) if (file.includes('.cache')) rmSync(directory + file, { force: true });
}
