import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { type ConnectionOptions, checkServerIdentity, connect, createSecureContext, type TLSSocket } from 'node:tls';
import { DelayqError } from '../model/errors.js';
import { printable } from '../model/text.js';
import type { SettingNames } from './errors.js';
import type { TlsOptions } from './url.js';

/** What each file holds, and how that begins. */
const CONTENTS = {
  ca: ['CA certificate', /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----/],
  cert: ['client certificate', /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----/],
  key: ['client key', /-----BEGIN [A-Z ]*PRIVATE KEY-----/],
} as const;

const REASONS: Record<string, string> = {
  ENOENT: 'there is no such file (ENOENT)',
  EACCES: 'no permission to read it (EACCES)',
  EISDIR: 'it is a directory (EISDIR)',
};

/** Reads the files of `tls`. Returns what opens a secure stream to `host`. Throws `config` if one cannot be used. */
export async function secure(tls: TlsOptions, host: string, names: SettingNames): Promise<(port: number) => TLSSocket> {
  const [ca, cert, key] = await Promise.all((['ca', 'cert', 'key'] as const).map((name) => pemOf(name, tls, names)));
  const name = tls.servername ?? host;
  const options: ConnectionOptions = {
    secureContext: contextOf({ ca, cert, key }, tls, names),
    // Whatever NODE_TLS_REJECT_UNAUTHORIZED says.
    rejectUnauthorized: true,
    // Also an address is compared with the certificate, but RFC 6066 forbids to send it, and Node would warn.
    ...(isIP(name) ? {} : { servername: name }),
    checkServerIdentity: (_, certificate) => checkServerIdentity(name, certificate),
  };
  return (port) => connect({ ...options, host, port });
}

type Pem = string | undefined;

async function pemOf(name: keyof typeof CONTENTS, tls: TlsOptions, names: SettingNames): Promise<Pem> {
  const given = tls[name];
  if (given === undefined) return undefined;
  const bad = (why: string, cause?: unknown) =>
    unusable(name, tls, why, `give the right file, in PEM form, with ${names[name]}`, cause);
  if (typeof given === 'string' && !isPem(given) && isEncoded(given)) {
    throw bad('it is neither a path nor PEM: decode it first (base64 -d)');
  }
  const text = isPem(given)
    ? given.toString()
    : await readFile(given, 'latin1').catch((error: NodeJS.ErrnoException) => {
        throw bad(REASONS[error.code ?? ''] ?? error.code ?? 'it cannot be read', error);
      });
  const [what, begin] = CONTENTS[name];
  if (!begin.test(text)) throw bad(`it holds no ${what.replace(/.* /, '')} in PEM form (-----BEGIN …)`);
  try {
    // OpenSSL ignores a CA that it cannot read, and the server would be called unknown.
    if (name !== 'key') new X509Certificate(text.slice(text.search(begin)));
  } catch (error) {
    throw bad(`its certificate is damaged: ${(error as { code?: string }).code}`, error);
  }
  return text;
}

/** A path has no line break: without this rule, a key that lost its first line would be shown as one. */
const isPem = (given: string | Buffer): given is Buffer => Buffer.isBuffer(given) || /-----BEGIN|\n/.test(given);

/** Base64 of PEM or of what PEM holds: not a path, and not to be shown. */
const isEncoded = (given: string) => /^[A-Za-z0-9+/=]{100,}$/.test(given);

function unusable(name: keyof typeof CONTENTS, tls: TlsOptions, why: string, next: string, cause?: unknown) {
  const file = tls[name];
  const shown = file === undefined || isPem(file) || isEncoded(file) ? '' : ` ${printable(file, 300)}`;
  return new DelayqError('config', `cannot use the ${CONTENTS[name][0]}${shown}`, { why, next, cause });
}

function contextOf(pems: { ca: Pem; cert: Pem; key: Pem }, tls: TlsOptions, names: SettingNames) {
  try {
    return createSecureContext(Object.fromEntries(Object.entries(pems).filter(([, pem]) => pem !== undefined)));
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    if (code === 'ERR_OSSL_X509_KEY_VALUES_MISMATCH') {
      const next = `give the key of this certificate with ${names.key}`;
      throw unusable('cert', tls, `the client key belongs to another certificate (${code})`, next, error);
    }
    if (/ENCRYPTED/.test(pems.key ?? '')) {
      const next = `decrypt it (openssl pkey -in FILE -out NEW, readable only by you), and give the new file with ${names.key}`;
      throw unusable('key', tls, 'it is encrypted with a passphrase', next, error);
    }
    const name = /PEM|X509/.test(code) ? 'cert' : 'key';
    throw unusable(name, tls, message, `make the file anew, and give it with ${names[name]}`, error);
  }
}
