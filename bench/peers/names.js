/** The peers' names in the table. @type {Record<string, string>} */
export const PEERS = {
  bullmq: 'BullMQ',
  'bee-queue': 'bee-queue',
  beanstalkd: 'beanstalkd',
  naive: 'ZADD + HSET (ioredis)',
};
