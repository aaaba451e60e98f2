import { afterAll, aroundEach } from 'vitest';
import { cleanedUp, fileIsOver } from './afterwards.js';

// Vitest runs this before each file. The modules that files import, it evaluates once for each worker (isolate: false):
// a hook that one of them registered would run for the first file only.
aroundEach(cleanedUp);
afterAll(fileIsOver);
