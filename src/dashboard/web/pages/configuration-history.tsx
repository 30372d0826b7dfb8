import { call } from "../api.ts";
import { Button } from "../components/controls.tsx";
import { Dialog, perform } from "../components/dialog.tsx";
import { Empty, Time } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { useResource } from "../resource.ts";
import { type ConfigurationEntry, entryPath, ifMatch } from "./configuration-entry.tsx";

type Members = Readonly<Record<string, unknown>>;

/** An entry of the audit log. */
interface Act {
  readonly id: string;
  readonly action: string;
  readonly actor: { readonly name: string | null };
  readonly before: Members | null;
  readonly after: Members | null;
  readonly created_at: string;
}

interface HistoryProps {
  /** The path of the entry's list in the API, such as v1/admin/aliases. */
  readonly path: string;
  /** The kind of the entry, with which its actions in the audit log begin. */
  readonly kind: "provider" | "model" | "alias";
  readonly entry: ConfigurationEntry;
  onChanged(): void;
  onClose(): void;
}

/** The changes of a stored entry, newest first. Each change can be reverted, except for keys. */
export function HistoryDialog({ path, kind, entry, onChanged, onClose }: HistoryProps) {
  const { id } = entry;
  const { data, error } = useResource<{ data: Act[] }>(
    `v1/admin/audit_log?object_id=${encodeURIComponent(id)}&limit=50`,
  );
  const revert = (act: Act) =>
    perform(`Reverted ${id}.`, async () => {
      const body = membersBefore(act);
      await call("PATCH", entryPath(path, entry), { body, headers: ifMatch(entry) });
      onClose();
      onChanged();
    });
  const columns: Column<Act>[] = [
    { title: "Time", cell: ({ created_at: at }) => <Time iso={at} /> },
    { title: "By", cell: ({ actor }) => actor.name ?? "Gateway" },
    {
      title: "Change",
      cell: (act) => <span class="code">{changeOf(act)}</span>,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (act) =>
        act.action.endsWith(".updated") &&
        Object.keys(membersBefore(act)).length > 0 && (
          <Button
            needs="operator"
            variant="quiet"
            label={`Revert ${act.id}`}
            onClick={() => void revert(act)}
          >
            Revert
          </Button>
        ),
    },
  ];
  return (
    <Dialog title={`History of ${id}`} onClose={onClose}>
      <Table
        label={`History of ${id}`}
        columns={columns}
        rows={data?.data.filter(({ action }) => action.startsWith(`${kind}.`))}
        error={error}
        keyOf={(act) => act.id}
        empty={
          <Empty title="No changes yet">
            <p>Changes of this entry are listed here.</p>
          </Empty>
        }
      />
    </Dialog>
  );
}

/** Returns the names of the members that an act changed. The log has null in place of no members. */
function changedNames({ before, after }: Act): string[] {
  return [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
}

/** Returns the changed members as they were before. Null for one that was added. The log has no keys. */
function membersBefore(act: Act): Members {
  const names = changedNames(act).filter((name) => name !== "key_prefix" && name !== "api_keys");
  return Object.fromEntries(names.map((name) => [name, act.before?.[name] ?? null]));
}

function changeOf(act: Act): string {
  const { action, before, after } = act;
  if (!action.endsWith(".updated")) return action.slice(action.indexOf(".") + 1);
  return changedNames(act)
    .map((name) => `${name}: ${shown(before?.[name])} → ${shown(after?.[name])}`)
    .join("; ");
}

function shown(value: unknown): string {
  if (value === undefined || value === null) return "none";
  if (typeof value === "string") return value;
  if (!Array.isArray(value)) return JSON.stringify(value);
  return value
    .map((one) => (typeof one === "object" ? Object.values(one).join(" ") : String(one)))
    .join(", ");
}
