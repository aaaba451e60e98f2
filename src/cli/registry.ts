import type { Command } from 'commander';
import type { Context } from './host/context.js';

/** Makes a command; `all` returns the program with all its commands. */
type Make = (context: Context, all: () => Promise<Command>) => Command;

/** The summaries of all commands, by groups and in the order of the help. */
export const COMMANDS: Readonly<Record<string, Partial<Record<keyof typeof LOADERS, string>>>> = {
  Produce: {
    enqueue: 'add jobs to a queue, due now or later',
    every: 'add jobs again and again: by a cron expression, or an interval',
  },
  Consume: {
    drain: 'deliver due jobs, oldest first, to a handler or stdout',
    ack: 'complete jobs: remove them',
    nack: 'give jobs back to be retried',
    renew: 'extend the leases of jobs',
  },
  Look: {
    inspect: 'show the queues, and what is wrong with them',
    list: 'list the jobs of a queue, dead ones first',
    show: 'show everything about one job',
  },
  Act: {
    cancel: 'remove jobs',
    reschedule: 'change the due time of pending jobs',
    requeue: 'make dead jobs pending again',
    bury: 'move pending jobs to the dead set',
    move: 'move jobs to another queue',
    purge: 'remove all jobs of a queue',
    pause: 'stop delivering jobs from a queue',
    resume: 'deliver jobs from a paused queue again',
  },
  Serve: {
    serve: 'serve the queues over HTTP, as lmstfy does',
    token: 'make, list and remove the tokens of HTTP clients',
  },
  Operate: {
    doctor: 'check Redis and the queues, repair what is broken',
    check: 'print one line for monitoring',
    wait: 'wait until a queue is idle, for deploys',
    metrics: 'print metrics for Prometheus',
    config: 'show or set the defaults of a queue',
    export: 'print the jobs of a queue, to be imported elsewhere',
    import: 'add exported jobs to a queue',
    adopt: 'move jobs from a sorted set and a hash of other software',
    crontab: 'print a crontab line that drains a queue',
    completion: 'print a completion script for your shell',
    demo: 'show delayq at work in ten seconds, on a private Redis',
  },
};

/** Loads the function that makes a command: only the command that is run is loaded. */
export const LOADERS = {
  enqueue: async () => (await import('./commands/enqueue.js')).enqueueCommand,
  every: async () => (await import('./commands/every.js')).everyCommand,
  drain: async () => (await import('./commands/drain.js')).drainCommand,
  ack: async () => (await import('./commands/settle.js')).ackCommand,
  nack: async () => (await import('./commands/settle.js')).nackCommand,
  renew: async () => (await import('./commands/settle.js')).renewCommand,
  inspect: async () => (await import('./commands/inspect.js')).inspectCommand,
  list: async () => (await import('./commands/list.js')).listCommand,
  show: async () => (await import('./commands/show.js')).showCommand,
  cancel: async () => (await import('./commands/cancel.js')).cancelCommand,
  reschedule: async () => (await import('./commands/reschedule.js')).rescheduleCommand,
  requeue: async () => (await import('./commands/requeue.js')).requeueCommand,
  bury: async () => (await import('./commands/bury.js')).buryCommand,
  move: async () => (await import('./commands/move.js')).moveCommand,
  purge: async () => (await import('./commands/purge.js')).purgeCommand,
  pause: async () => (await import('./commands/pause.js')).pauseCommand,
  resume: async () => (await import('./commands/pause.js')).resumeCommand,
  serve: async () => (await import('./commands/serve.js')).serveCommand,
  token: async () => (await import('./commands/token.js')).tokenCommand,
  doctor: async () => (await import('./commands/doctor.js')).doctorCommand,
  check: async () => (await import('./commands/check.js')).checkCommand,
  wait: async () => (await import('./commands/wait.js')).waitCommand,
  metrics: async () => (await import('./commands/metrics.js')).metricsCommand,
  config: async () => (await import('./commands/config.js')).configCommand,
  export: async () => (await import('./commands/export.js')).exportCommand,
  import: async () => (await import('./commands/import.js')).importCommand,
  adopt: async () => (await import('./commands/adopt.js')).adoptCommand,
  crontab: async () => (await import('./commands/crontab.js')).crontabCommand,
  completion: async () => (await import('./commands/completion.js')).completionCommand,
  demo: async () => (await import('./commands/demo.js')).demoCommand,
} satisfies Record<string, () => Promise<Make>>;
