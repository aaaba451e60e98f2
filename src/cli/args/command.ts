import { Command } from 'commander';
import { DelayqError } from '../../internal.js';

/** An error of usage: what is wrong, what to do, and why. */
export const usageError = (what: string, next: string, why?: string): DelayqError =>
  new DelayqError('usage', what, { why, next });

/** A command with what ours have besides: texts in the help, and options that refuse others. */
export class CliCommand extends Command {
  override createCommand(name?: string): CliCommand {
    return new CliCommand(name);
  }

  /**
   * Adds text below the options. Paragraphs are wrapped at 80 columns; lines that are indented further than the first
   * one stay as they are.
   */
  details(text: string): this {
    const [, margin = ''] = /^\n( *)/.exec(text) ?? [];
    const paragraphs = text
      .replaceAll(`\n${margin}`, '\n')
      .trim()
      .replace(/^(\S.*)\n(?=\S)/gm, '$1 ');
    const wrap = (paragraph: string) => paragraph.replace(/(.{1,80})( +|$)/g, '$1\n').trimEnd();
    return this.addHelpText('after', `\n${paragraphs.replace(/^\S.*/gm, wrap)}`);
  }

  /** Adds examples, at most 78 columns, below the details: the end of a long help is what a terminal still shows. */
  examples(lines: readonly string[]): this {
    return this.addHelpText('after', `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}`);
  }

  /** Lets options refuse others. All are given by their names in the program. */
  exclude(exclusions: Readonly<Record<string, readonly string[]>>): this {
    for (const option of this.options) option.conflicts([...(exclusions[option.attributeName()] ?? [])]);
    return this;
  }
}
