import type { Command } from 'commander';
import type { Context } from './host/context.js';

/** A command before it is made: only the one that is meant is loaded at a start. */
export interface Offer {
  readonly summary: string;
  readonly load: () => Promise<(context: Context, everything: () => Promise<Command>) => Command>;
}

const offer = (summary: string, load: Offer['load']): Offer => ({ summary, load });

/** All commands by the groups of the help, in the order in which it tells of them. */
export const COMMANDS: Readonly<Record<string, Readonly<Record<string, Offer>>>> = {
  Produce: {
    enqueue: offer(
      'put jobs into a queue, due now or later',
      async () => (await import('./commands/enqueue.js')).enqueueCommand,
    ),
  },
  Consume: {
    drain: offer(
      'take due jobs, oldest due first, into a handler or to stdout',
      async () => (await import('./commands/drain.js')).drainCommand,
    ),
    ack: offer('say that jobs are done: remove them', async () => (await import('./commands/settle.js')).ackCommand),
    nack: offer('give jobs back, to be tried again', async () => (await import('./commands/settle.js')).nackCommand),
    renew: offer('hold jobs for longer', async () => (await import('./commands/settle.js')).renewCommand),
  },
  Look: {
    inspect: offer(
      'show what is in the queues, and what is wrong',
      async () => (await import('./commands/inspect.js')).inspectCommand,
    ),
    list: offer(
      'list the jobs of a queue, dead ones first',
      async () => (await import('./commands/list.js')).listCommand,
    ),
    show: offer('show all that is known of one job', async () => (await import('./commands/show.js')).showCommand),
  },
  Act: {
    cancel: offer('remove jobs: the order was paid', async () => (await import('./commands/cancel.js')).cancelCommand),
    reschedule: offer(
      'give pending jobs another due time',
      async () => (await import('./commands/reschedule.js')).rescheduleCommand,
    ),
    requeue: offer(
      'put dead jobs back into their queue',
      async () => (await import('./commands/requeue.js')).requeueCommand,
    ),
    bury: offer(
      'put pending jobs among the dead: until the patch ships',
      async () => (await import('./commands/bury.js')).buryCommand,
    ),
    move: offer('put jobs into another queue', async () => (await import('./commands/move.js')).moveCommand),
    purge: offer('remove all jobs of a queue', async () => (await import('./commands/purge.js')).purgeCommand),
    pause: offer(
      'have drains take nothing from a queue',
      async () => (await import('./commands/pause.js')).pauseCommand,
    ),
    resume: offer(
      'have drains take from a paused queue again',
      async () => (await import('./commands/pause.js')).resumeCommand,
    ),
  },
  Operate: {
    doctor: offer(
      'find what is wrong with Redis and the queues, and mend it',
      async () => (await import('./commands/doctor.js')).doctorCommand,
    ),
    check: offer(
      'one line for monitoring: is the queue kept within limits',
      async () => (await import('./commands/check.js')).checkCommand,
    ),
    wait: offer(
      'wait until nothing is being done: for deploys',
      async () => (await import('./commands/wait.js')).waitCommand,
    ),
    metrics: offer(
      'print counts of the queues for Prometheus',
      async () => (await import('./commands/metrics.js')).metricsCommand,
    ),
    config: offer(
      'show or set the defaults of a queue',
      async () => (await import('./commands/config.js')).configCommand,
    ),
    export: offer(
      'write all jobs of a queue as lines, to be imported elsewhere',
      async () => (await import('./commands/export.js')).exportCommand,
    ),
    import: offer(
      'put jobs that were exported into a queue',
      async () => (await import('./commands/import.js')).importCommand,
    ),
    adopt: offer(
      'take over the jobs of a sorted set and a hash of other software',
      async () => (await import('./commands/adopt.js')).adoptCommand,
    ),
    crontab: offer(
      'print a line for a crontab that drains a queue',
      async () => (await import('./commands/crontab.js')).crontabCommand,
    ),
    completion: offer(
      'print a script that completes delayq in your shell',
      async () => (await import('./commands/completion.js')).completionCommand,
    ),
    demo: offer(
      'show the main job in ten seconds, on a private Redis',
      async () => (await import('./commands/demo.js')).demoCommand,
    ),
  },
};
