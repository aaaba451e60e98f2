import { type Arg, Encoded } from '../net/call.js';

/** Commands of delayq without a key. The others have it as their first argument, or see {@link KEY_AT}. */
const KEYLESS = new Set(
  'ACL CLIENT CLUSTER COMMAND CONFIG DBSIZE ECHO INFO LATENCY PING PUBLISH ROLE SCAN SCRIPT SLOWLOG TIME WAIT WAITAOF'.split(
    ' ',
  ),
);

/** Which argument is the first key. */
const KEY_AT: Record<string, number> = { EVAL: 2, EVALSHA: 2, MEMORY: 1, OBJECT: 1 };

/**
 * Returns the slot of the first key of a command; undefined if it has none. It may be wrong for a command that delayq
 * does not use: then Redis names the right server, if it is another.
 */
export function slotOf(command: string, args: readonly Arg[]): number | undefined {
  const name = command.toUpperCase();
  if (KEYLESS.has(name)) return undefined;
  const key = args[KEY_AT[name] ?? 0];
  return key === undefined ? undefined : slotOfKey(key instanceof Encoded ? key.first : key);
}

/** Returns the slot of a key in a Redis Cluster: of its hash tag, if it has one. */
export function slotOfKey(key: string | number | Buffer): number {
  const bytes = Buffer.isBuffer(key) ? key : Buffer.from(String(key));
  const open = bytes.indexOf('{');
  const close = open < 0 ? -1 : bytes.indexOf('}', open + 1);
  return crc16(close > open + 1 ? bytes.subarray(open + 1, close) : bytes) % 16_384;
}

/** CRC-16/XMODEM, as https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/ requires. */
function crc16(bytes: Buffer): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : crc << 1;
  }
  return crc;
}
