import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { exitOf, firstKeys, Grounds } from "../crash/gateway-process.ts";
import { endpoint } from "./endpoint.ts";
import { event } from "./event.ts";
import { keyColumn } from "./key-column.ts";
import { ProjectCopy } from "./project-copy.ts";
import { provider } from "./provider.ts";
import type { EditedProject, Recipe } from "./recipe.ts";
import { setting } from "./setting.ts";
import { unit } from "./unit.ts";

/*
 * Follows recipes of CONTRIBUTING.md in a copy of the project: one addition for each, in a file of this folder. All
 * additions are made in one copy, because checking its types takes most of the time.
 */

const RECIPES: readonly Recipe[] = [provider, endpoint, unit, keyColumn, event, setting];

/** Types are checked twice: some 30 seconds on two cores, and far more next to other tests. */
const SETUP_MS = 400_000;
const TIMEOUT_MS = 60_000;
/** The tests of generated and described files that an addition must keep. */
const PAGE_TESTS = ["test/docs.test.ts", "test/docs/reference-pages.test.ts"];

const isCode = (path: string) => /\.tsx?$/.test(path);
/** Returns the last file of code that the recipe edits. */
const lastCodeOf = ({ edits }: Recipe) => edits.findLast(({ path }) => isCode(path))!;

const grounds = new Grounds("recipes");
const folder = join(grounds.folder, "project");
let contributing: string;
/** TypeScript's errors without the last edit of code of each recipe. */
let errorsIfForgotten: string[];
let errors: string[];
let edited: EditedProject;
let copy: ProjectCopy;

beforeAll(async () => {
  copy = await ProjectCopy.create(folder);
  contributing = copy.read("CONTRIBUTING.md");
  const forgotten = RECIPES.filter(({ edits }) => edits.length > 1).map(lastCodeOf);
  const edits = RECIPES.flatMap((recipe) => recipe.edits);
  for (const edit of edits) if (!forgotten.includes(edit)) copy.edit(edit);
  errorsIfForgotten = await copy.typeErrors();
  for (const edit of forgotten) copy.edit(edit);
  errors = await copy.typeErrors();
  if (RECIPES.some(({ needsMigration }) => needsMigration)) {
    await copy.run("run", "migrations", "--name", "additions");
  }
  await copy.run("src/platform/config/publish-reference.ts");
  edited = await startEdited();
}, SETUP_MS);
afterAll(() => grounds.clear());

async function startEdited(): Promise<EditedProject> {
  const program = join(folder, "src", "main.ts");
  const dataDir = await grounds.newDataDirWithDatabase();
  const configurations = RECIPES.flatMap(({ configuration }) => configuration ?? []);
  const configPath = join(grounds.folder, "recipes.config.json");
  await Bun.write(configPath, JSON.stringify(Object.assign({}, ...configurations)));
  const environments = RECIPES.map((recipe) => recipe.environment);
  const environment = Object.assign({ GATEWAY_CONFIG: configPath }, ...environments);
  const baseUrl = await grounds.launch({ dataDir, program, environment }).listening;
  const { management_key: management, secret_key: secret } = firstKeys(dataDir);
  const keys = { management, secret };
  return {
    async call(method, path, { key = "management", body } = {}) {
      const authorization = `Bearer ${keys[key]}`;
      const headers = { authorization, "content-type": "application/json" };
      const text = body && JSON.stringify(body);
      const response = await fetch(baseUrl + path, { method, headers, body: text });
      return { status: response.status, body: (await response.json()) as Record<string, unknown> };
    },
    read: (path) => copy.read(path),
    async refusal(wrong) {
      const gateway = grounds.launch({
        dataDir: grounds.newDataDir(),
        program,
        environment: wrong,
      });
      expect(await exitOf(gateway)).toBe(1);
      return gateway.stderr();
    },
  };
}

/** Returns the recipe's stated number of files and its text. */
function statedIn(
  page: string,
  heading: string,
): { readonly files: number; readonly text: string } {
  const stated = new RegExp(`^\\*\\*${heading}: (\\d+) files?\\b[^]*?(?=^\\*\\*|^## )`, "m").exec(
    page,
  );
  if (stated === null) throw new Error(`CONTRIBUTING.md has no recipe "${heading}: N files"`);
  return { files: Number(stated[1]), text: stated[0] };
}

describe.each(RECIPES.map((recipe): [string, Recipe] => [recipe.heading, recipe]))(
  "%s",
  (heading, recipe) => {
    test("edits as many files as the recipe states, all named by the recipe", () => {
      const { files, text } = statedIn(contributing, heading);
      expect(recipe.edits).toHaveLength(files);
      const names = [...text.matchAll(/`([\w./-]+\/[\w.-]*)`/g)].map(([, name]) => name!);
      const unnamed = recipe.edits.filter(({ path, namedAs }) => {
        if (namedAs !== undefined) return !text.includes(namedAs);
        return !names.some(
          (name) => name === path || (name.endsWith("/") && path.startsWith(name)),
        );
      });
      expect(unnamed.map(({ path }) => path)).toEqual([]);
    });

    if (recipe.edits.length > 1) {
      test("is reported by TypeScript if its last edit of code is forgotten", () => {
        const paths = recipe.edits.map(({ path }) => path);
        const inThem = new RegExp(`^(?:${paths.map(RegExp.escape).join("|")})\\(`);
        expect(errorsIfForgotten).toContainEqual(expect.stringMatching(inThem));
      });
    }

    test("works, seen from outside", () => recipe.prove(edited), TIMEOUT_MS);
  },
);

test("the copy with all additions has no errors of types", () => {
  expect(errors).toEqual([]);
});

test(
  "the pages of the copy describe all additions",
  async () => {
    const { exitCode, output } = await copy.run("test", ...PAGE_TESTS);
    expect({ exitCode, output: exitCode === 0 ? "" : output }).toEqual({ exitCode: 0, output: "" });
  },
  TIMEOUT_MS,
);
