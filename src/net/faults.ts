import { DelayqError, type ErrorCode } from '../model/errors.js';
import { printable } from '../model/text.js';
import type { Address } from './address.js';
import { DEADLINE_MS, type SettingNames } from './errors.js';
import type { Progress } from './link.js';

const SILENT = `no answer within ${DEADLINE_MS / 1000} s`;

const REASONS: Record<string, string> = {
  ECONNREFUSED: 'nothing listens there (ECONNREFUSED)',
  ENOENT: 'the socket does not exist (ENOENT)',
  ENOTFOUND: 'unknown host name (ENOTFOUND)',
  EAI_AGAIN: 'the host name could not be looked up (EAI_AGAIN)',
  EACCES: 'no permission to open the socket (EACCES)',
  ETIMEDOUT: `${SILENT} (ETIMEDOUT)`,
  ECONNRESET: 'Redis closed the connection (ECONNRESET)',
  EPIPE: 'Redis closed the connection (EPIPE)',
  EPROTO: 'the data of the TLS connection was damaged (EPROTO)',
};

export function connectionFault(error: Error): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code && REASONS[code]) return REASONS[code];
  if (code?.startsWith('ERR_SSL_')) return `the data of the TLS connection was damaged (${code})`;
  if (error.message === 'Connection is closed.' || /connection close/.test(error.message)) {
    return 'the connection was closed';
  }
  return code && !error.message.includes(code) ? `${error.message} (${code})` : error.message;
}

/** Whether the first bytes of a server cannot be a reply of Redis to what is sent first: OK or an error. */
export function isForeign(greeting: Buffer | undefined): greeting is Buffer {
  return greeting !== undefined && !/^[+-]/.test(greeting.toString('latin1', 0, 1));
}

/** What else a server may be, by its first bytes. They are not quoted: a server may send back a password. */
const PROTOCOLS: readonly [RegExp, string][] = [
  [/^HTTP\/|^<!?[a-z]/i, 'it speaks HTTP'],
  [/^SSH-/, 'it speaks SSH'],
  [/^220[ -]/, 'it speaks SMTP or FTP'],
  [/^\*\d+\r\n\$\d+\r\n(auth|select|client)\r\n/i, 'it sends back what it receives'],
];

/** Makes the error for a connection that did not come about: what `cause` means, and what to do about it. */
export function unconnected(
  cause: Error,
  { tls, options, shown }: Address,
  names: SettingNames,
  { reached, secured, greeting }: Progress,
): DelayqError {
  const code = (cause as NodeJS.ErrnoException).code ?? '';
  const make = (kind: ErrorCode, why: string, next: string) =>
    new DelayqError(kind, `cannot reach ${names.server ?? 'Redis'} at ${shown}`, { why, next, cause });
  const withTls = `if Redis uses TLS there, set a URL that begins with rediss://, with ${names.url}`;
  const withoutTls = `if Redis does not use TLS there, set a URL that begins with redis://, with ${names.url}`;

  if (isForeign(greeting)) {
    const text = greeting.toString('latin1', 0, 40);
    // An alert, the way in which TLS refuses.
    if (greeting[0] === 0x15 && greeting[1] === 3) return make('config', 'the server expects TLS', withTls);
    const what = PROTOCOLS.find(([pattern]) => pattern.test(text))?.[1] ?? 'its first reply is none of Redis';
    return make('config', `the server there is not Redis: ${what}`, `set the host and port of Redis with ${names.url}`);
  }
  if (tls) {
    if (/WRONG_VERSION_NUMBER|PACKET_LENGTH|RECORD_LAYER|HTTP_REQUEST/.test(code)) {
      return make('config', `the server does not speak TLS (${code})`, withoutTls);
    }
    const problem = certificateProblem(code, cause, { tls, host: options.host, names });
    if (problem) return make(...problem);
    if (reached && !secured && code === 'ETIMEDOUT')
      return make('unreachable', `${SILENT} to the TLS handshake`, withoutTls);
    if (/^(ERR_SSL|ERR_TLS|EPROTO)/.test(code)) {
      return make('unreachable', `TLS failed: ${reasonOf(cause)} (${code})`, 'check the TLS settings of the server');
    }
  }
  const isClosed = ['ECONNRESET', 'EPIPE'].includes(code) || cause.message === 'Connection is closed.';
  if (isClosed && options.path === undefined) {
    // Never advise a user of TLS to send a password without it.
    const other = secured ? 'check that Redis is up behind it' : tls ? withoutTls : withTls;
    return make('unreachable', connectionFault(cause), `check the host and port; ${other}`);
  }
  if (reached && code === 'ETIMEDOUT') {
    const next = 'check that this is the address of Redis, and that Redis is not blocked or stopped';
    return make('unreachable', SILENT, next);
  }
  if (code === 'ENOTFOUND') return make('unreachable', connectionFault(cause), `correct the host with ${names.url}`);
  const start = names.server ? `start ${names.server} there` : 'start Redis there (redis-server)';
  return make('unreachable', connectionFault(cause), `${start}, or set another URL with ${names.url}`);
}

/** OpenSSL's own words, without its numbers and file names. */
const reasonOf = (error: Error) => (error as { reason?: string }).reason ?? error.message;

const UNTRUSTED =
  /^(SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_GET_ISSUER_CERT(_LOCALLY)?|UNABLE_TO_VERIFY_LEAF_SIGNATURE|CERT_UNTRUSTED)$/;

/** Alerts of a server that wants another client certificate. TLS 1.2 says handshake failure if there is none. */
const REFUSED_BY_SERVER =
  /ALERT_(CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_(REVOKED|EXPIRED|UNKNOWN)|UNKNOWN_CA|ACCESS_DENIED)$/;

/** What is wrong with a certificate: that of the server, or ours. Undefined if it is something else. */
function certificateProblem(
  code: string,
  cause: Error,
  { tls, host, names }: Pick<Address['options'], 'host'> & { tls: object; names: SettingNames },
): [ErrorCode, why: string, next: string] | undefined {
  const { cert, ca, servername = host } = tls as { cert?: unknown; ca?: unknown; servername?: string };
  if (code === 'DEPTH_ZERO_SELF_SIGNED_CERT') {
    const why = `the server has a self-signed certificate that is not trusted here (${code})`;
    return ['unreachable', why, `if it is the right one, give it with ${names.ca}`];
  }
  if (UNTRUSTED.test(code)) {
    const by = ca === undefined ? 'a CA that is not trusted here' : 'another CA than the given one';
    const why = `the certificate of the server is signed by ${by} (${code})`;
    return ['unreachable', why, `give the certificate of its CA with ${names.ca}`];
  }
  if (code === 'CERT_HAS_EXPIRED' || code === 'CERT_NOT_YET_VALID') {
    const why = `the certificate of the server ${code === 'CERT_HAS_EXPIRED' ? 'has expired' : 'is not yet valid'} (${code})`;
    return ['unreachable', why, 'renew it on the server; or, if it is valid, set the clock of this machine'];
  }
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
    const { cert: theirs } = cause as { cert?: { subjectaltname?: string; subject?: { CN?: string } } };
    const owner = theirs?.subjectaltname ?? theirs?.subject?.CN ?? 'no name';
    const why = `the certificate of the server is for ${printable(owner, 200)}, not for ${servername} (${code})`;
    const next = `connect to a name it is for; or, if it is the right server, give that name with ${names.servername}`;
    return ['unreachable', why, next];
  }
  if (!REFUSED_BY_SERVER.test(code)) return undefined;
  if (cert === undefined) {
    const next = `give a certificate that the server trusts, and its key, with ${names.cert} and ${names.key}`;
    return ['refused', `the server requires a client certificate (${code})`, next];
  }
  const next = `give a valid certificate, from a CA that the server trusts, with ${names.cert} and ${names.key}`;
  return ['refused', `the server does not accept the client certificate: ${reasonOf(cause)} (${code})`, next];
}

/** The error if none of several servers could be reached. `failures`: one for each. */
export function noneReached(
  failures: readonly DelayqError[],
  servers: readonly Address[],
  names: SettingNames,
): DelayqError {
  const [first] = failures;
  if (first && failures.length === 1) return first;
  const places = servers.map(({ shown }) => shown.replace(/^.*:\/\//, ''));
  // Each had only a part of the time.
  const reasons = failures.map(({ why = '' }) => why.replace(SILENT, 'no answer in time'));
  const isSame = new Set(reasons).size === 1;
  const what = names.server ? 'Sentinels' : 'servers of Redis';
  return new DelayqError('unreachable', `cannot reach any of ${servers.length} ${what}`, {
    why: isSame
      ? `${places.slice(0, failures.length).join(', ')}: ${reasons[0]}`
      : reasons.map((why, i) => `${places[i]}: ${why}`).join('; '),
    next: (isSame && first?.next) || `start one of them, or set other addresses with ${names.url}`,
    cause: first,
  });
}
