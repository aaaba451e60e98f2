import { expect, it } from 'vitest';
import { bad, fine } from '../../src/health/finding.js';
import { fold } from '../../src/server/fold.js';

const three = ['redis://a:1', 'redis://b:2', 'redis://c:3'];
const from = (make: (address: string, n: number) => object) =>
  fold(three.map((address, n) => ({ address, findings: [make(address, n) as never] })));

it('what is in order on all servers is one finding about all', () => {
  expect(from(() => fine('version', 'Redis 7'))).toEqual([fine('version', 'Redis 7')]);
});

it('what differs names the servers', () => {
  expect(from((_, n) => fine('version', `Redis ${n < 2 ? 7 : 8}`))).toEqual([
    { ...fine('version', 'Redis 7'), nodes: three.slice(0, 2) },
    { ...fine('version', 'Redis 8'), nodes: three.slice(2) },
  ]);
});

it('of figures in order the worst is shown, and a bad one by itself', () => {
  const figures = (values: number[]) =>
    from((_, n) =>
      values[n] === 9 ? bad('warn', 'trip', '9 ms', 'slow') : { ...fine('trip', `${values[n]} ms`), rank: values[n] },
    );
  expect(figures([1, 3, 2])).toEqual([{ ...fine('trip', '3 ms (the worst of 3 nodes)'), nodes: ['redis://b:2'] }]);
  expect(figures([1, 3, 9]).map(({ what, nodes }) => [what, nodes])).toEqual([
    ['3 ms (the worst of 2 nodes)', ['redis://b:2']],
    ['9 ms', ['redis://c:3']],
  ]);
});

it('the commands for several servers become one loop, with the comment after it', () => {
  const [found] = from((address) => bad('warn', 'aof', 'off', 'why', `redis-cli -u ${address} set  # for now`));
  expect(found).toMatchObject({
    what: 'off (on 3 nodes)',
    next: 'for url in redis://a:1 redis://b:2 redis://c:3; do redis-cli -u $url set; done  # for now',
  });
});

it('one server is not named', () => {
  const found = bad('warn', 'trip', '9 ms', 'slow', 'redis-cli -u redis://a:1 x');
  expect(fold([{ address: 'redis://a:1', findings: [found, { ...fine('memory', 'x'), rank: 1 }] }])).toEqual([
    found,
    fine('memory', 'x'),
  ]);
});
