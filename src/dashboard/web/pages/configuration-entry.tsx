import type { ComponentChildren } from "preact";
import { call } from "../api.ts";
import { Confirm, toast } from "../components/dialog.tsx";

/** Origins of entries, with their titles. */
export const SOURCES = {
  environment: "Environment",
  file: "Configuration file",
  stored: "Added here",
  built_in: "Built in",
  provider_list: "Provider's list",
} as const;

/** Members of each entry in the answers of /v1/admin/providers, models, aliases and prices. */
export interface ConfigurationEntry {
  readonly id: string;
  readonly source: keyof typeof SOURCES;
  /** 0 for an entry that is not stored. */
  readonly version: number;
}

/** Actions for stored entries, with their labels. */
export const STORED_ACTIONS = [
  ["edit", "Edit"],
  ["history", "History"],
  ["delete", "Delete"],
] as const;

/**
 * Stores a new entry, or changes members of one.
 *
 * @param path the path of the list in the API, such as v1/admin/aliases
 * @param id the id of the new entry. Changes keep the id of `edited`.
 */
export async function saveEntry(
  path: string,
  edited: ConfigurationEntry | undefined,
  { id, ...members }: { readonly id: string; readonly [member: string]: unknown },
): Promise<void> {
  if (edited === undefined) {
    await call("POST", path, { body: { id, ...members } });
    toast(`Added ${id}.`);
  } else {
    await call("PATCH", entryPath(path, edited), { body: members, headers: ifMatch(edited) });
    toast(`Changed ${edited.id}.`);
  }
}

interface DeleteDialogProps {
  /** The path of the list in the API, such as v1/admin/aliases. */
  readonly path: string;
  /** The kind of the entry in a sentence, such as "alias". */
  readonly kind: string;
  readonly entry: ConfigurationEntry;
  /** The effect of the deletion. */
  readonly children: ComponentChildren;
  onDeleted(): void;
  onClose(): void;
}

/** Asks for confirmation, and deletes a stored entry. Lists its users if it is in use. */
export function DeleteDialog(props: DeleteDialogProps) {
  const { path, kind, entry, children, onDeleted, onClose } = props;
  return (
    <Confirm
      title={`Delete this ${kind}?`}
      action={`Delete ${kind}`}
      onClose={onClose}
      onConfirm={async () => {
        await call("DELETE", entryPath(path, entry), { headers: ifMatch(entry) });
        toast(`Deleted ${entry.id}.`);
        onClose();
        onDeleted();
      }}
    >
      {children}
    </Confirm>
  );
}

/** Returns the path of an entry in the API. Ids of models contain slashes. */
export function entryPath(path: string, { id }: Pick<ConfigurationEntry, "id">): string {
  return `${path}/${encodeURIComponent(id)}`;
}

/** Returns the header with which a change is rejected if another person has changed the entry since. */
export function ifMatch({ version }: Pick<ConfigurationEntry, "version">) {
  return { "if-match": `"${version}"` };
}
