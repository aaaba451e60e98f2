import { type AdminCall, poolNamed } from './call.js';

/** `GET /info`: the queues of each namespace of a pool. */
export async function info(call: AdminCall): Promise<void> {
  const { exchange } = call;
  const { inspector } = poolNamed(call, exchange.query.get('pool')).pool;
  const namespaces = new Map<string, string[]>();
  for (const name of await inspector.queues()) {
    // Others cannot be reached over HTTP.
    const [, ns, queue] = /^([A-Za-z0-9_-]+)\.([A-Za-z0-9-][A-Za-z0-9_-]*)$/.exec(name) ?? [];
    if (ns && queue) namespaces.set(ns, [...(namespaces.get(ns) ?? []), queue]);
  }
  exchange.answer(200, Object.fromEntries(namespaces));
}

/** `GET /pools`: the names of the pools. */
export function pools({ exchange, admin }: AdminCall): void {
  exchange.answer(200, [...admin.rings.keys()]);
}

/** `GET /version` */
export function version({ exchange, admin }: AdminCall): void {
  exchange.answer(200, { name: 'delayq', version: admin.version });
}
