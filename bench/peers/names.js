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

/** Those that are packages of npm. A smoke run leaves them out: to install and load them takes longer than all else. */
export const PACKAGED = ['bullmq', 'bee-queue', 'graphile-worker', 'pg-boss'];
