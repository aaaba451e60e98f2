// beanstalkd with a minimal client that pipelines its commands, as the protocol allows.
import { once } from 'node:events';
import { connect } from 'node:net';
import { overlapped } from './overlapped.js';

/** Jobs reserved ahead of the handlers. */
const WINDOW = 500;
const LF = 10;

/** @param {import('./peer.js').Where} where */
export async function open({ beanstalkd: port }) {
  const socket = connect(port, '127.0.0.1').setNoDelay();
  await once(socket, 'connect');
  /** Callbacks for the replies, in order. @type {((line: string, body?: Buffer) => void)[]} */
  const waiting = [];
  let first = 0;
  let rest = Buffer.alloc(0);
  socket.on('data', (chunk) => {
    const bytes = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk;
    let start = 0;
    for (;;) {
      const end = bytes.indexOf(LF, start);
      if (end < 0) break;
      const line = bytes.latin1Slice(start, end - 1);
      let next = end + 1;
      let body;
      if (line.startsWith('RESERVED')) {
        next += Number(line.slice(line.lastIndexOf(' '))) + 2;
        if (next > bytes.length) break;
        body = bytes.subarray(end + 1, next - 2);
      }
      start = next;
      waiting[first](line, body);
      first += 1;
      if (first === 10_000) {
        waiting.splice(0, first);
        first = 0;
      }
    }
    rest = bytes.subarray(start);
  });
  // All commands of one turn of the event loop go out in one write.
  let outbox = '';
  const say = (text, answered) => {
    if (outbox === '') setImmediate(flush);
    outbox += text;
    waiting.push(answered);
  };
  const flush = () => {
    socket.write(outbox);
    outbox = '';
  };
  const ask = (text) => new Promise((resolve) => say(text, (line, body) => resolve({ line, body })));
  /** Delays are whole seconds, rounded up so that no job is early. */
  const add = (data, at = 0) =>
    new Promise((resolve, reject) => {
      const body = JSON.stringify(data);
      const delay = Math.max(0, Math.ceil((at - Date.now()) / 1_000));
      say(`put 1000 ${delay} 60 ${Buffer.byteLength(body)}\r\n${body}\r\n`, (line) =>
        line.startsWith('INSERTED') ? resolve(line) : reject(new Error(line)),
      );
    });
  return {
    add,
    addMany: (jobs) => overlapped(jobs, 1_000, (some) => Promise.all(some.map(({ data, at }) => add(data, at)))),
    drain: (n, handle) =>
      new Promise((resolve) => {
        let reserved = 0;
        let done = 0;
        const reserve = () => {
          reserved += 1;
          say('reserve\r\n', async (line, body) => {
            await handle(body);
            if (reserved < n) reserve();
            say(`delete ${line.split(' ')[1]}\r\n`, () => {
              done += 1;
              if (done === n) resolve();
            });
          });
        };
        for (let i = 0; i < Math.min(WINDOW, n); i += 1) reserve();
      }),
    takeEach: async (n, handle) => {
      for (let i = 0; i < n; i += 1) {
        const { line, body } = await ask('reserve\r\n');
        await handle(body);
        await ask(`delete ${line.split(' ')[1]}\r\n`);
      }
    },
    watch: async (handle) => {
      const reserve = () =>
        say('reserve\r\n', (line, body) => {
          handle(JSON.parse(body.toString()));
          say(`delete ${line.split(' ')[1]}\r\n`, () => {});
          reserve();
        });
      reserve();
    },
    close: async () => socket.end(),
  };
}
