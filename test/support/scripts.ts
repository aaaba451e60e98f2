import { shaOf } from '../../src/script.js';

/** The name by which Redis knows a script: what a call of it holds. */
export const scriptHash = shaOf;
