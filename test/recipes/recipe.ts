import type { Answer } from "../start/client.ts";

/** An addition to the project that follows a recipe of CONTRIBUTING.md, and the proof that it works. */
export interface Recipe {
  /** The heading in CONTRIBUTING.md, up to its number of files. */
  readonly heading: string;
  /** The edits that the recipe requires, in its order, without tests, fixtures and generated files. */
  readonly edits: readonly Edit[];
  /** True if the recipe's step of generating a migration applies. */
  readonly needsMigration?: true;
  /** Settings of the gateway in which the addition is tried. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Providers and models of its configuration file. */
  readonly configuration?: {
    readonly providers: readonly object[];
    readonly models: readonly object[];
  };
  /** Throws unless the addition works, seen from outside. */
  prove(edited: EditedProject): Promise<void>;
}

/** The edit of one file. */
export interface Edit {
  readonly path: string;
  /** The recipe's words for a file that it cannot name, because the file depends on the addition. */
  readonly namedAs?: string;
  /** The text of a new file, or what changes in an existing one. */
  readonly change: string | readonly TextChange[];
}

/** A change at a text that the file has exactly once. */
export type TextChange =
  | { readonly before: string; readonly insert: string }
  | { readonly after: string; readonly insert: string }
  | { readonly replace: string; readonly by: string };

/** A copy of the project with the edits of all recipes, and a gateway that runs from it. */
export interface EditedProject {
  /** Calls the gateway, with a management key unless `key` says otherwise. */
  call(
    method: string,
    path: string,
    options?: { readonly key?: "management" | "secret"; readonly body?: object },
  ): Promise<Answer>;
  /** Returns the text of a file of the copy, after `bun run schema`. */
  read(path: string): string;
  /** Returns what the gateway prints if it does not start with these settings. */
  refusal(environment: Readonly<Record<string, string>>): Promise<string>;
}
