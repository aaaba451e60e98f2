/** The peers' names in the table. @type {Record<string, string>} */
export const PEERS = {
  bullmq: 'BullMQ',
  'bee-queue': 'bee-queue',
  beanstalkd: 'beanstalkd',
  naive: 'ZADD + HSET (ioredis)',
  'graphile-worker': 'Graphile Worker',
  'pg-boss': 'pg-boss',
};

/** The servers of those that do not use Redis. @type {Record<string, string>} */
export const SERVERS = { beanstalkd: 'beanstalkd', 'graphile-worker': 'postgres', 'pg-boss': 'postgres' };
