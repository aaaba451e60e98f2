import { freshName } from './redis.js';

/** Every kind of command that connects to Redis, with arguments. */
export const commands = (queue = freshName()) => [
  ['enqueue', queue, '1'],
  ['enqueue', '--at', '12:00', queue, '1'],
  ['drain', queue],
  ['drain', '--watch', queue],
  ['inspect'],
  ['inspect', queue],
  ['drain', queue, '--', 'true'],
  ['drain', '--pipe', 'true', queue],
  ['list', queue],
  ['show', queue, 'a'],
  ['requeue', queue, 'a'],
  ['config', queue],
];

/** The commands that do not wait until Redis is back. */
export const unwaiting = () => commands().filter((args) => !args.includes('--watch'));
