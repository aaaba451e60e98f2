import { isUtf8 } from 'node:buffer';

/** An argument of a call. Text is sent as UTF-8. */
export type Arg = string | number | Buffer | Encoded;

/** A reply of Redis. Strings are bytes. */
export type Reply = number | null | Buffer | Reply[];

/** Sends calls: a connection, or what its `pin` returns. */
export interface Caller {
  /** The address of Redis, without user and password. */
  readonly address: string;
  /** It sends to a cluster, as far as is known. */
  readonly sharded?: boolean;
  call(command: string, ...args: Arg[]): Promise<Reply>;
}

/** Several arguments, encoded once because they are sent often. */
export class Encoded {
  readonly first: string;
  readonly count: number;
  readonly text: string;

  constructor(args: readonly string[]) {
    this.first = args[0] ?? '';
    this.count = args.length;
    this.text = args.map(bulk).join('');
  }
}

const bulk = (text: string) => `$${Buffer.byteLength(text)}\r\n${text}\r\n`;

/** Bytes up to this length are sent as text if they are UTF-8: to make a buffer of many small pieces costs more. */
const SHORT = 1_024;

/** Returns a command as Redis reads it: text, or bytes if an argument is bytes. */
export function encode(command: string, args: readonly Arg[]): string | Buffer {
  /** Everything up to the last argument that is sent as bytes. */
  const before: Buffer[] = [];
  let count = 1;
  let text = bulk(command);
  for (const arg of args) {
    count += arg instanceof Encoded ? arg.count : 1;
    if (arg instanceof Encoded) text += arg.text;
    else if (!Buffer.isBuffer(arg)) text += bulk(String(arg));
    else if (arg.length <= SHORT && isUtf8(arg)) text += `$${arg.length}\r\n${arg}\r\n`;
    else {
      before.push(Buffer.from(`${text}$${arg.length}\r\n`), arg);
      text = '\r\n';
    }
  }
  const head = `*${count}\r\n`;
  return before.length > 0 ? Buffer.concat([Buffer.from(head), ...before, Buffer.from(text)]) : head + text;
}
