// The least that an HTTP server in Node can do for a publish: http-bare.js PORT. It reads the body and answers 201.
import { createServer } from 'node:http';

const answer = Buffer.from('{"msg":"published","job_id":"01JD9Q6Y8Z0000000000000000"}');
const headers = { 'Content-Type': 'application/json; charset=utf-8', 'Content-Length': answer.length };

createServer((request, response) => {
  const body = [];
  request.on('data', (chunk) => body.push(chunk));
  request.on('end', () => {
    if (Buffer.concat(body).length === 0) response.writeHead(400).end();
    else response.writeHead(201, headers).end(answer);
  });
}).listen(Number(process.argv[2]), '127.0.0.1');
