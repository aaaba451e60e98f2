import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Starts the files whose names end so before all others, in this order: none of them runs alone in the end. */
export const longestFirst = (...long: readonly string[]) =>
  class extends BaseSequencer {
    override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
      const placeOf = ({ moduleId }: TestSpecification) => {
        const place = long.findIndex((name) => moduleId.endsWith(`/${name}`));
        return place < 0 ? long.length : place;
      };
      return (await super.sort(files)).sort((a, b) => placeOf(a) - placeOf(b));
    }
  };
