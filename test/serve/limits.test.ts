import { describe, expect, it } from 'vitest';
import { MAX_PASSED } from '../../src/serve/api/jobs.js';
import { PATIENCE } from '../../src/serve/http/exchange.js';
import { MAX_IN_FLIGHT } from '../../src/serve/server.js';
import { read } from '../support/examples.js';

const MIB = 1024 * 1024;
const seconds = (ms: number) => `${ms / 1000} s`;

/** A document as one line: where it breaks its lines does not matter. */
const told = (name: string) => read(name).replace(/\s+/g, ' ');

describe('the limits of a server are what the documents say:', () => {
  const { headersMs, requestMs, answerMs, idleMs, lingerMs } = PATIENCE;

  it.each([
    `headers have ${seconds(headersMs)}, a request ${seconds(requestMs)}, the reading of an answer ${seconds(answerMs)}`,
    `Others stay open for ${seconds(idleMs)} between requests`,
    `503 above ${MAX_IN_FLIGHT / MIB} MiB of bodies in memory`,
  ])('%s', (text) => {
    expect(told('docs/guide/http.md')).toContain(text);
  });

  it('the command changes none of them', () => {
    expect(read('src/cli/commands/serve.ts')).not.toMatch(/patience|maxInFlight|clock/);
  });

  it.each([
    `headers ${seconds(headersMs)}, whole request ${seconds(requestMs)}`,
    `idle connections stay for ${seconds(idleMs)}`,
    `A refused body is read on for ${seconds(lingerMs)}`,
    `more than ${MAX_IN_FLIGHT / MIB} MiB in flight`,
    `at most ${MAX_PASSED.jobs.toLocaleString('en')}, or ${MAX_PASSED.bytes / MIB} MiB of their payloads`,
  ])('%s (internals)', (text) => {
    expect(told('docs/internals/http.md')).toContain(text);
  });
});
