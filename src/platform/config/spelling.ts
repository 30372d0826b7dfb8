import { characterPairs, editDistance, nearestNames } from "../../lib/nearest-names.ts";
import { type Environment, variable } from "./environment.ts";
import { CONFIG_VARIABLES } from "./variables.ts";

const PREFIX = "GATEWAY_";
/** Shorter names without the prefix are too close to the names of other programs. */
const MIN_CHARACTERS = 8;
const MAX_EDITS = 2;
/** A different first word of at most this length is another name, such as R2 or EXA, and no typing mistake. */
const SHORT_WORD_CHARACTERS = 3;

const SETTING_NAMES: ReadonlySet<string> = new Set(CONFIG_VARIABLES.map(({ name }) => name));
/** The settings as candidates, compared without the prefix. */
const CANDIDATES = [...SETTING_NAMES].map((name) => ({
  name,
  spellings: [characterPairs(withoutPrefix(name))],
}));

/**
 * Returns a warning for each variable that most likely is a misspelled setting: an unknown one with the gateway's
 * prefix, or one whose name is within two edits of a setting that is not set.
 *
 * @param usedByFile names of the variables that the configuration file refers to
 */
export function warnOfMisspelled(
  environment: Environment,
  usedByFile: readonly string[],
): string[] {
  const unset = [...SETTING_NAMES].filter((name) => variable(environment, name) === undefined);
  return Object.keys(environment)
    .filter((name) => !SETTING_NAMES.has(name) && !usedByFile.includes(name))
    .flatMap((name) => {
      if (!name.startsWith(PREFIX)) {
        const meant = misspelledSetting(name, unset);
        return meant === undefined ? [] : [`${name} is not a setting; did you mean ${meant}?`];
      }
      const [nearest] = nearestNames(withoutPrefix(name), CANDIDATES);
      const hint = nearest === undefined ? "" : `; did you mean ${nearest}?`;
      return [`${name} is ignored: there is no such setting${hint}`];
    });
}

function withoutPrefix(name: string): string {
  return name.startsWith(PREFIX) ? name.slice(PREFIX.length) : name;
}

/** Returns the setting nearest to the name of a variable without the prefix, or undefined if none is near. */
function misspelledSetting(name: string, settings: readonly string[]): string | undefined {
  if (name.length < MIN_CHARACTERS) return undefined;
  let nearest: string | undefined;
  let most = MAX_EDITS;
  for (const setting of settings) {
    const [firstWord = ""] = setting.split("_");
    if (firstWord.length <= SHORT_WORD_CHARACTERS && !name.startsWith(firstWord)) continue;
    const distance = editDistance(name, setting, most);
    if (distance > most) continue;
    nearest = setting;
    // The next one has to be nearer.
    most = distance - 1;
  }
  return nearest;
}
