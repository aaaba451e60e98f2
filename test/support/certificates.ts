import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryDirectory } from './temporary.js';

/** A CA for one test file, and what it signs. All files are in PEM form. */
export class Authority {
  readonly directory = temporaryDirectory();
  readonly ca = join(this.directory, 'ca.pem');

  constructor() {
    this.#openssl('req', '-x509', ...this.#newKey('ca'), '-out', this.ca, '-subj', '/CN=test CA', '-days', '1');
  }

  file(name: string): string {
    return join(this.directory, name);
  }

  read(name: string): string {
    return readFileSync(this.file(name), 'utf8');
  }

  /** Makes NAME.pem and NAME.key, for the host names and addresses of `san`. */
  issue(name: string, { san = 'DNS:localhost,IP:127.0.0.1', days = 1 } = {}): { cert: string; key: string } {
    const [cert, request, extensions] = ['pem', 'csr', 'ext'].map((ending) => this.file(`${name}.${ending}`)) as [
      string,
      string,
      string,
    ];
    writeFileSync(extensions, `subjectAltName=${san}\n`);
    this.#openssl('req', ...this.#newKey(name), '-out', request, '-subj', `/CN=${name}`);
    this.#openssl(
      ...['x509', '-req', '-in', request, '-CA', this.ca, '-CAkey', this.file('ca.key'), '-CAcreateserial'],
      ...['-out', cert, '-extfile', extensions, '-days', String(days)],
    );
    return { cert, key: this.file(`${name}.key`) };
  }

  /** Makes NAME.pem, signed by its own key NAME.key. */
  selfSign(name: string): { cert: string; key: string } {
    const cert = this.file(`${name}.pem`);
    const san = 'subjectAltName=DNS:localhost,IP:127.0.0.1';
    this.#openssl('req', '-x509', ...this.#newKey(name), '-out', cert, '-subj', `/CN=${name}`, '-addext', san);
    return { cert, key: this.file(`${name}.key`) };
  }

  /** Makes a copy of `key` that has a passphrase. */
  encrypt(key: string): string {
    const out = `${key}.encrypted`;
    this.#openssl('pkcs8', '-topk8', '-passout', 'pass:s3cret', '-in', key, '-out', out);
    return out;
  }

  #newKey(name: string): string[] {
    return ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', this.file(`${name}.key`)];
  }

  #openssl(...args: string[]): void {
    execFileSync('openssl', args, { stdio: ['ignore', 'ignore', 'pipe'] });
  }
}
