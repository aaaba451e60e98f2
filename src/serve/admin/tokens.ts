import type { Keyring } from '../access/keyring.js';
import { DEFAULT_RIGHTS, type Limits, type Right, type Token } from '../access/tokens.js';
import { JSON_TYPE } from '../http/exchange.js';
import { Refusal } from '../http/refusal.js';
import { type AdminCall, bodyOf, poolNamed, poolsOf } from './call.js';

/** The shortest token that a caller may choose, as in lmstfy. */
const SHORTEST = 20;

/** `POST /token/:ns`: makes a token. Parameters are in the query, or in a form as the body, which wins. */
export async function add(call: AdminCall): Promise<void> {
  const { exchange, params } = call;
  const ns = namespaceOf(params);
  const isForm = /^application\/x-www-form-urlencoded\b/i.test(exchange.header('content-type') ?? '');
  const form = new URLSearchParams(isForm ? await bodyOf(exchange) : '');
  const given = (name: string) => form.get(name) ?? exchange.query.get(name) ?? '';
  const description = given('description');
  if (description === '') throw new Refusal(400, 'invalid description');
  const [, poolOfToken, text = ''] = /^(?:([^:]*):)?(.*)$/s.exec(given('token')) ?? [];
  if (text !== '' && text.length < SHORTEST) throw new Refusal(400, 'the user token was too short');
  const pool = poolOfToken ?? given('pool');
  const rights = given('rights') === '' ? DEFAULT_RIGHTS : (given('rights').split(',') as Right[]);
  const token = await poolNamed(call, pool).add(ns, { description, rights, token: text || undefined });
  exchange.answer(201, { token: pool ? `${pool}:${token}` : token });
}

/** `GET /token/:ns`: the descriptions of tokens by their fingerprints. */
export async function list(call: AdminCall): Promise<void> {
  const { exchange, params } = call;
  const pool = exchange.query.get('pool');
  const all = await poolNamed(call, pool).tokens.list(namespaceOf(params));
  const prefix = pool ? `${pool}:` : '';
  const entries = all.map(({ fingerprint, description }) => [prefix + fingerprint, description]);
  exchange.answer(200, { tokens: Object.fromEntries(entries) });
}

/** `DELETE /token/:ns/:token` */
export async function remove(call: AdminCall): Promise<void> {
  const { ring, token } = await tokenOf(call);
  if (token) await ring.remove(token);
  call.exchange.answer(204);
}

/** `GET /token/:ns/:token/limit` */
export async function showLimit(call: AdminCall): Promise<void> {
  const { token } = await tokenOf(call);
  if (token?.limits) call.exchange.answer(200, token.limits);
  else call.exchange.answer(404, 'null', JSON_TYPE);
}

/** `POST /token/:ns/:token/limit`: sets limits of a token that has none. */
export const addLimit = (call: AdminCall) => setLimit(call, true);

/** `PUT /token/:ns/:token/limit` */
export const putLimit = (call: AdminCall) => setLimit(call, false);

/** `DELETE /token/:ns/:token/limit` */
export async function removeLimit(call: AdminCall): Promise<void> {
  const { ring, token } = await tokenOf(call);
  if (token?.limits) await ring.limit(token, undefined);
  call.exchange.answer(200, { msg: 'success' });
}

/** `GET /limits`: of all tokens of all pools, or of one. */
export async function listLimits(call: AdminCall): Promise<void> {
  const [first] = call.admin.rings.values();
  const all = poolsOf(call).map(async (ring) => {
    const prefix = ring === first ? '' : `${ring.pool.name}:`;
    const limited = (await ring.tokens.list()).filter(({ limits }) => limits);
    return limited.map(({ ns, fingerprint, limits }) => {
      return { namespace: ns, token: prefix + fingerprint, limiter: limits };
    });
  });
  call.exchange.answer(200, (await Promise.all(all)).flat());
}

async function setLimit(call: AdminCall, isNew: boolean): Promise<void> {
  const limits = await limitsIn(call);
  const { ring, token } = await tokenOf(call);
  if (isNew && token?.limits) throw new Refusal(409, 'the token has a limit already: change it with PUT');
  if (!token || !(await ring.limit(token, limits))) throw new Refusal(404, 'token not found');
  call.exchange.answer(isNew ? 201 : 200, { limiter: limits });
}

/** The limits in a body. Throws a refusal (400) if it has none. */
async function limitsIn({ exchange }: AdminCall): Promise<Limits> {
  const body = await bodyOf(exchange);
  let given: Partial<Limits> | null;
  try {
    given = JSON.parse(body) as Partial<Limits> | null;
  } catch {
    throw new Refusal(400, 'the body is not JSON');
  }
  const { read = 0, write = 0, interval = 0 } = given ?? {};
  if (read === 0 && write === 0) throw new Refusal(400, 'read and write are both 0');
  if (interval === 0) throw new Refusal(400, 'interval should be > 0');
  return { read, write, interval };
}

/** The token that a path names, by its text or fingerprint, with its pool before a colon or in the query. */
async function tokenOf(call: AdminCall): Promise<{ ring: Keyring; token: Token | undefined }> {
  const { exchange, params } = call;
  const [, pool = exchange.query.get('pool'), name = ''] = /^(?:([^:]*):)?(.*)$/s.exec(params.token ?? '') ?? [];
  const ring = poolNamed(call, pool);
  return { ring, token: await ring.tokens.find(namespaceOf(params), name) };
}

/** The namespace in a path. `*` is none: a token for all namespaces is made and removed on the command line only. */
function namespaceOf({ ns = '' }: Readonly<Record<string, string>>): string {
  if (ns.length > 255) throw new Refusal(400, 'the namespace name was too long');
  if (!/^[A-Za-z0-9_-]+$/.test(ns)) throw new Refusal(400, 'namespace name contains forbidden characters');
  return ns;
}
