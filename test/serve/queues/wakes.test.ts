import { expect, it } from 'vitest';
import { Wakes } from '../../../src/serve/queues/wakes.js';
import { afterwards } from '../../support/afterwards.js';
import { admin, connection, freshName, listeners } from '../../support/redis.js';
import { until } from '../../support/until.js';

it('all who wait for a channel hear its messages, until they leave', async () => {
  const wakes = new Wakes(connection);
  afterwards(() => wakes.close());
  const channel = `delayq:{${freshName()}}:wake`;
  const heard: string[] = [];
  const [one, two] = ['one', 'two'].map((name) => (due: number) => heard.push(`${name} ${due}`));
  const [first, second] = [one, two] as [(due: number) => void, (due: number) => void];
  wakes.on(channel, first);
  wakes.on(channel, second);
  await until(async () => (await listeners(channel)) > 0);
  const says = (due: number) => admin.publish(channel, String(due));
  await says(1);
  await until(() => heard.length === 2);
  expect(heard).toEqual(['one 1', 'two 1']);
  wakes.off(channel, first);
  await says(2);
  await until(() => heard.length === 3);
  wakes.on(channel, first);
  wakes.off(channel, second);
  await says(3);
  await until(() => heard.length === 4);
  expect(heard.slice(2)).toEqual(['two 2', 'one 3']);
});
