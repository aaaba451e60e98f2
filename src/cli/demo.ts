import { Command } from 'commander';
import type { Context } from './context.js';
export function demoCommand(context: Context): Command {
  return new Command('demo').action(async () => {
    void context;
  });
}
