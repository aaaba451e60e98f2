import { describe, expect, it } from 'vitest';
import { addQueue, isListed, listQueues, removeQueue } from '../../src/store/queues.js';
import { Store } from '../../src/store/store.js';
import { admin, connection, freshName } from '../support/redis.js';

describe('the list of queues', () => {
  it('has what was added, once, until it is removed', async () => {
    const prefix = freshName();
    expect(await listQueues(connection, prefix)).toEqual([]);
    await addQueue(connection, prefix, 'a');
    await Store.of(connection, prefix, 'b').list();
    await addQueue(connection, prefix, 'b');
    expect((await listQueues(connection, prefix)).sort()).toEqual(['a', 'b']);
    await removeQueue(connection, prefix, 'a');
    expect(await isListed(connection, prefix, 'a')).toBe(false);
    expect(await isListed(connection, prefix, 'b')).toBe(true);
  });

  it('fails no call that only tries to add to it', async () => {
    const prefix = freshName();
    await admin.set(`${prefix}:queues`, 'not a list');
    await expect(addQueue(connection, prefix, 'a')).rejects.toMatchObject({ code: 'config' });
    await Store.of(connection, prefix, 'a').list();
  });
});
