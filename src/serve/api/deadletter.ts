import type { Id } from '../../internal.js';
import { type ApiCall, queueName } from './call.js';
import { countOf, ttlOf } from './params.js';

/** The largest limit, as in lmstfy: all there are. */
const MAX_LIMIT = 2 ** 63 - 1;

/** `GET /api/:ns/:queue/deadletter`: how many jobs are dead, and the id of the one that has been dead for longest. */
export async function show({ exchange, params, pool }: ApiCall): Promise<void> {
  const name = queueName(params);
  await pool.shared(name).takeBack();
  let head = '';
  for await (const [id = ''] of pool.inspector.ids(name, { states: ['dead'], limit: 1 })) head = textOf(id);
  const size = await pool.inspector.count(name, { states: ['dead'] });
  exchange.answer(200, { namespace: params.ns, queue: params.queue, deadletter_size: size, deadletter_head: head });
}

/** An id of other software may be no text. */
const textOf = (id: Id) => (typeof id === 'string' ? id : `base64:${id.toString('base64')}`);

/** `GET /api/:ns/:queue/deadletter/size` */
export async function size({ exchange, params, pool }: ApiCall): Promise<void> {
  const name = queueName(params);
  await pool.shared(name).takeBack();
  const size = await pool.inspector.count(name, { states: ['dead'] });
  exchange.answer(200, { namespace: params.ns, queue: params.queue, size });
}

/** `PUT /api/:ns/:queue/deadletter`: makes dead jobs due, for one more try. */
export async function respawn(call: ApiCall): Promise<void> {
  const { exchange, params, pool, defaults } = call;
  const name = queueName(params);
  const ttl = ttlOf(exchange.query, defaults);
  const count = await oldest(call, name, async (ids) => {
    const answers = await pool.operator.requeue(name, ids, undefined, { ttl, deliveries: 1 });
    return answers.filter((answer) => answer === 'requeued').length;
  });
  exchange.answer(200, { msg: 'respawned', count });
}

/** `DELETE /api/:ns/:queue/deadletter`: removes dead jobs. */
export async function remove(call: ApiCall): Promise<void> {
  const { exchange, params, pool } = call;
  const name = queueName(params);
  await oldest(call, name, async (ids) => {
    const answers = await pool.operator.cancel(name, ids, ['dead']);
    return answers.filter((answer) => answer === 'dead').length;
  });
  exchange.answer(204);
}

/**
 * Hands the jobs that have been dead for longest to `act`, in slices, until it has done as many as the `limit` of the
 * request. Returns how many. Stops if the client goes away.
 */
async function oldest(call: ApiCall, name: string, act: (ids: readonly Id[]) => Promise<number>): Promise<number> {
  const { exchange, pool } = call;
  const limit = countOf(exchange.query, 'limit', 1, 1, MAX_LIMIT);
  // Leave out jobs that die again meanwhile.
  const to = await pool.shared(name).takeBack();
  let done = 0;
  for await (const ids of pool.inspector.ids(name, { states: ['dead'], to })) {
    for (let at = 0; at < ids.length && done < limit && !exchange.isGone; ) {
      const some = ids.slice(at, at + limit - done);
      at += some.length;
      done += await act(some);
    }
    if (done === limit || exchange.isGone) break;
  }
  return done;
}
