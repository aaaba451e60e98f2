// The minimal drain in Node: raw-drain.js PORT FILE. Repeats the first drain call in FILE (written by recorder.js) over a
// plain socket. Writes the payloads of each reply to stdout at once, while Redis works on the next call.
import { once } from 'node:events';
import { readFileSync, writeSync } from 'node:fs';
import { connect } from 'node:net';

const [port, file] = process.argv.slice(2);
const [LF, BULK, ARRAY] = [10, 36, 42];
/** In the reply of lua/jobs/drain.lua: the index of the first job, the elements per job, the payload's place in them. */
const [FIRST, STEP, PAYLOAD] = [9, 4, 3];

/** The elements of an array of numbers and strings as [start, end]; undefined if it is incomplete. @param {Buffer} bytes */
function elements(bytes) {
  let at = 0;
  const line = () => {
    const end = bytes.indexOf(LF, at);
    if (end < 0) return;
    const found = { start: at + 1, end: end - 1, kind: bytes[at] };
    at = end + 1;
    return found;
  };
  const numberIn = ({ start, end }) => Number(bytes.latin1Slice(start, end));
  const head = line();
  if (!head) return;
  if (head.kind !== ARRAY) throw new Error(bytes.latin1Slice(0, 200));
  const found = [];
  for (let left = numberIn(head); left > 0; left -= 1) {
    const element = line();
    if (!element) return;
    if (element.kind !== BULK) found.push([element.start, element.end]);
    else {
      const end = at + numberIn(element);
      if (end + 2 > bytes.length) return;
      found.push([at, end]);
      at = end + 2;
    }
  }
  return found;
}

const recorded = readFileSync(file);
const name = /\*\d+\r\n\$7\r\nEVALSHA\r\n/i.exec(recorded.latin1Slice());
const [, count] = /^\*(\d+)/.exec(name[0]);
/** The bytes of that one call. */
const call = recorded.subarray(name.index, name.index + lengthOf(recorded.subarray(name.index), Number(count)));

function lengthOf(bytes, strings) {
  let at = bytes.indexOf(LF) + 1;
  for (let i = 0; i < strings; i += 1) {
    const end = bytes.indexOf(LF, at);
    at = end + 1 + Number(bytes.latin1Slice(at + 1, end - 1)) + 2;
  }
  return at;
}

const socket = connect(Number(port), '127.0.0.1').setNoDelay();
await once(socket, 'connect');
socket.write(call);
let bytes = Buffer.alloc(0);
for await (const chunk of socket) {
  bytes = bytes.length > 0 ? Buffer.concat([bytes, chunk]) : chunk;
  const found = elements(bytes);
  if (!found) continue;
  if (found.length <= FIRST) break;
  socket.write(call);
  const out = Buffer.allocUnsafe(bytes.length);
  let length = 0;
  for (let i = FIRST + PAYLOAD; i < found.length; i += STEP) {
    const [start, end] = found[i];
    length += bytes.copy(out, length, start, end);
    out[length] = LF;
    length += 1;
  }
  for (let at = 0; at < length; ) at += writeSync(1, out, at, length - at);
  bytes = Buffer.alloc(0);
}
socket.destroy();
