import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { afterwards } from './support/afterwards.js';
import { cronEnv, PROGRESS, sh } from './support/cli.js';
import { temporaryDirectory } from './support/temporary.js';

const path = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));

/** The commands of a document's console blocks, with their output. */
function commandsOf(document: string): { command: string; prints: string[] }[] {
  const found: { command: string; prints: string[] }[] = [];
  for (const [, block = ''] of document.matchAll(/^```console\n(.*?)^```$/gms)) {
    for (const line of block.trimEnd().split('\n')) {
      if (line.startsWith('$ ')) found.push({ command: line.slice(2), prints: [] });
      else found.at(-1)?.prints.push(line);
    }
  }
  return found;
}

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

/** Matches a line of the document: … and the spaces around it stand for any text. */
const likeLine = (line: string) => new RegExp(`^${line.split(/ *… */).map(escaped).join('.*')}$`);

it('the commands of the incident example print what it shows', async () => {
  const directory = `${temporaryDirectory()}/incident`;
  const [stage, , ...commands] = commandsOf(readFileSync(path('incident.md'), 'utf8'));
  expect(stage?.command).toBe('sh incident.sh /tmp/incident');
  const env = { DELAYQ_REDIS_URL: `unix://${directory}/redis.sock`, TERM: 'xterm', NO_COLOR: '1' };
  afterwards(() => sh(`redis-cli -s ${directory}/redis.sock shutdown nosave`));
  const staged = await sh(`sh ${path('incident.sh')} ${directory}`, { env: cronEnv() as Record<string, string> });
  expect(staged).toMatchObject({ code: 0, stdout: `export DELAYQ_REDIS_URL=${env.DELAYQ_REDIS_URL}\n`, stderr: '' });
  expect(commands.length).toBeGreaterThan(15);
  for (const { command, prints } of commands) {
    const quoted = `cd ${directory}; stty cols 100; ${command}`.replaceAll("'", "'\\''");
    const { stdout } = await sh(`script -qec '${quoted}' /dev/null`, { env });
    const lines = stdout.replaceAll('\r\n', '\n').replace(PROGRESS, '').trimEnd().split('\n');
    expect.soft(lines.length, `${command}:\n${stdout}`).toBe(Math.max(1, prints.length));
    for (const [i, line] of prints.entries()) expect.soft(lines[i], command).toMatch(likeLine(line));
  }
});
