import type { Command } from 'commander';
import type { Context } from './host/context.js';

/** A command of the registry: only the one that is run is loaded. */
export interface Entry {
  readonly summary: string;
  /** Loads the function that makes the command; `all` returns the program with all its commands. */
  readonly load: () => Promise<(context: Context, all: () => Promise<Command>) => Command>;
}

/** All commands, by groups and in the order of the help. */
export const COMMANDS: Readonly<Record<string, Readonly<Record<string, Entry>>>> = {
  Produce: {
    enqueue: {
      summary: 'add jobs to a queue, due now or later',
      load: async () => (await import('./commands/enqueue.js')).enqueueCommand,
    },
  },
  Consume: {
    drain: {
      summary: 'deliver due jobs, oldest first, to a handler or stdout',
      load: async () => (await import('./commands/drain.js')).drainCommand,
    },
    ack: {
      summary: 'complete jobs: remove them',
      load: async () => (await import('./commands/settle.js')).ackCommand,
    },
    nack: {
      summary: 'give jobs back to be retried',
      load: async () => (await import('./commands/settle.js')).nackCommand,
    },
    renew: {
      summary: 'extend the leases of jobs',
      load: async () => (await import('./commands/settle.js')).renewCommand,
    },
  },
  Look: {
    inspect: {
      summary: 'show the queues, and what is wrong with them',
      load: async () => (await import('./commands/inspect.js')).inspectCommand,
    },
    list: {
      summary: 'list the jobs of a queue, dead ones first',
      load: async () => (await import('./commands/list.js')).listCommand,
    },
    show: {
      summary: 'show everything about one job',
      load: async () => (await import('./commands/show.js')).showCommand,
    },
  },
  Act: {
    cancel: {
      summary: 'remove jobs',
      load: async () => (await import('./commands/cancel.js')).cancelCommand,
    },
    reschedule: {
      summary: 'change the due time of pending jobs',
      load: async () => (await import('./commands/reschedule.js')).rescheduleCommand,
    },
    requeue: {
      summary: 'make dead jobs pending again',
      load: async () => (await import('./commands/requeue.js')).requeueCommand,
    },
    bury: {
      summary: 'move pending jobs to the dead set',
      load: async () => (await import('./commands/bury.js')).buryCommand,
    },
    move: {
      summary: 'move jobs to another queue',
      load: async () => (await import('./commands/move.js')).moveCommand,
    },
    purge: {
      summary: 'remove all jobs of a queue',
      load: async () => (await import('./commands/purge.js')).purgeCommand,
    },
    pause: {
      summary: 'stop delivering jobs from a queue',
      load: async () => (await import('./commands/pause.js')).pauseCommand,
    },
    resume: {
      summary: 'deliver jobs from a paused queue again',
      load: async () => (await import('./commands/pause.js')).resumeCommand,
    },
  },
  Operate: {
    doctor: {
      summary: 'check Redis and the queues, repair what is broken',
      load: async () => (await import('./commands/doctor.js')).doctorCommand,
    },
    check: {
      summary: 'print one line for monitoring',
      load: async () => (await import('./commands/check.js')).checkCommand,
    },
    wait: {
      summary: 'wait until a queue is idle, for deploys',
      load: async () => (await import('./commands/wait.js')).waitCommand,
    },
    metrics: {
      summary: 'print metrics for Prometheus',
      load: async () => (await import('./commands/metrics.js')).metricsCommand,
    },
    config: {
      summary: 'show or set the defaults of a queue',
      load: async () => (await import('./commands/config.js')).configCommand,
    },
    export: {
      summary: 'print the jobs of a queue, to be imported elsewhere',
      load: async () => (await import('./commands/export.js')).exportCommand,
    },
    import: {
      summary: 'add exported jobs to a queue',
      load: async () => (await import('./commands/import.js')).importCommand,
    },
    adopt: {
      summary: 'move jobs from a sorted set and a hash of other software',
      load: async () => (await import('./commands/adopt.js')).adoptCommand,
    },
    crontab: {
      summary: 'print a crontab line that drains a queue',
      load: async () => (await import('./commands/crontab.js')).crontabCommand,
    },
    completion: {
      summary: 'print a completion script for your shell',
      load: async () => (await import('./commands/completion.js')).completionCommand,
    },
    demo: {
      summary: 'show delayq at work in ten seconds, on a private Redis',
      load: async () => (await import('./commands/demo.js')).demoCommand,
    },
  },
};
