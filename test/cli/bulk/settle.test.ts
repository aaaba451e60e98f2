import { expect, it } from 'vitest';
import { LineSettler, type Settle } from '../../../src/cli/bulk/settle.js';
import type { Context } from '../../../src/cli/host/context.js';
import { Connection, withRetries } from '../../../src/internal.js';
import { freshName } from '../../support/redis.js';

it('names the lines that it could not settle when the time to retry is over, and fails as the last attempt did', async () => {
  const said: string[] = [];
  const context = {
    redis: () => new Connection('redis://127.0.0.1:1'),
    prefix: () => freshName(),
    withoutLogins: (text: string) => text,
    stderr: { write: (text: string) => said.push(text) },
    env: {},
  } as unknown as Context;
  const settle: Settle = (queue, jobs, limits) => withRetries(() => queue.ack(jobs), limits);
  const settler = new LineSettler(context, {}, settle, { retryForMs: 300 });
  await settler.add([7, 8, 9].map((line) => ({ queue: 'q', id: `j${line}`, receipt: 'r', line })));
  await expect(settler.end()).rejects.toMatchObject({ code: 'unreachable' });
  expect(said.join('')).toMatch(
    /^(delayq: cannot reach [\s\S]*still trying\n)?delayq: lines 7 to 9: not settled in q\n$/,
  );
});
