import type { Command } from 'commander';
import type { CliCommand } from './args/command.js';
import type { Context } from './host/context.js';

/** Adds to a command its help, options and action; `all` does so for every command, and returns the program. */
export type Make = (command: CliCommand, context: Context, all: () => Promise<Command>) => void;

/** The commands of a group: the summary of each, and the module that makes it, as `nameCommand`. */
const group = <Name extends string>(
  commands: {
    readonly [N in Name]: readonly [summary: string, load: () => Promise<Record<`${N}Command`, Make>>];
  },
): Readonly<Record<string, readonly [summary: string, load: () => Promise<object>]>> => commands;

/** All commands, in the order of the help. A module is loaded when its command is run. */
export const COMMANDS = {
  Produce: group({
    enqueue: ['add jobs to a queue, due now or later', () => import('./commands/enqueue.js')],
    every: ['add jobs again and again: by a cron expression, or an interval', () => import('./commands/every.js')],
  }),
  Consume: group({
    drain: ['deliver due jobs, oldest first, to a handler or stdout', () => import('./commands/drain.js')],
    ack: ['complete jobs: remove them', () => import('./commands/settle.js')],
    nack: ['give jobs back to be retried', () => import('./commands/settle.js')],
    renew: ['extend the leases of jobs', () => import('./commands/settle.js')],
  }),
  Look: group({
    inspect: ['show the queues, and what is wrong with them', () => import('./commands/inspect.js')],
    list: ['list the jobs of a queue, dead ones first', () => import('./commands/list.js')],
    show: ['show everything about one job', () => import('./commands/show.js')],
    events: ['print what happened to jobs', () => import('./commands/events.js')],
    result: ['print what came out of a job, or wait for it', () => import('./commands/result.js')],
  }),
  Act: group({
    cancel: ['remove jobs', () => import('./commands/cancel.js')],
    reschedule: ['change the due time of pending jobs', () => import('./commands/reschedule.js')],
    requeue: ['make dead jobs pending again', () => import('./commands/requeue.js')],
    edit: ['change the payload of a job', () => import('./commands/edit.js')],
    bury: ['move pending jobs to the dead set', () => import('./commands/bury.js')],
    move: ['move jobs to another queue', () => import('./commands/move.js')],
    purge: ['remove all jobs of a queue', () => import('./commands/purge.js')],
    pause: ['stop delivering jobs from a queue', () => import('./commands/pause.js')],
    resume: ['deliver jobs from a paused queue again', () => import('./commands/pause.js')],
  }),
  Serve: group({
    serve: ['serve the queues over HTTP, as lmstfy does', () => import('./commands/serve.js')],
    token: ['make, list and remove the tokens of HTTP clients', () => import('./commands/token.js')],
  }),
  Operate: group({
    doctor: ['check Redis and the queues, repair what is broken', () => import('./commands/doctor.js')],
    check: ['print one line for monitoring', () => import('./commands/check.js')],
    wait: ['wait until a queue is idle, for deploys', () => import('./commands/wait.js')],
    metrics: ['print metrics for Prometheus', () => import('./commands/metrics.js')],
    config: ['show or set the defaults of a queue', () => import('./commands/config.js')],
    export: ['print the jobs of a queue, to be imported elsewhere', () => import('./commands/export.js')],
    import: ['add exported jobs to a queue', () => import('./commands/import.js')],
    adopt: ['move jobs from a sorted set and a hash of other software', () => import('./commands/adopt.js')],
    crontab: ['print a crontab line that drains a queue', () => import('./commands/crontab.js')],
    completion: ['print a completion script for your shell', () => import('./commands/completion.js')],
    demo: ['show delayq at work in ten seconds, on a private Redis', () => import('./commands/demo.js')],
  }),
};
