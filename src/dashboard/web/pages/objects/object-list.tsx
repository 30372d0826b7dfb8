import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Code, Link } from "../../components/controls.tsx";
import { Confirm, perform, toast } from "../../components/dialog.tsx";
import { Badge, Empty, Panel, ShortId, Time } from "../../components/display.tsx";
import { type Column, Pager, Table } from "../../components/table.tsx";
import { titled } from "../../format.ts";
import { useResource } from "../../resource.ts";
import { gatewayUrl } from "../../router.ts";

/** Lists and actions that the pages of stored objects share. */

interface Listed {
  readonly id: string;
}

export interface ObjectPage<Row> {
  readonly data: readonly Row[];
  readonly has_more: boolean;
}

const PAGE_SIZE = 25;

/**
 * Loads a page of a list. Another filter begins with the first page.
 *
 * @param path below api/objects/
 */
export function useObjects<Row extends Listed, Also = object>(
  path: string,
  filters: Readonly<Record<string, string>> = {},
) {
  const parameters = new URLSearchParams({ limit: String(PAGE_SIZE) });
  for (const [name, value] of Object.entries(filters)) if (value) parameters.set(name, value);
  const list = `objects/${path}?${parameters}`;
  const [position, setPosition] = useState<{ list: string; cursors: readonly string[] }>();
  const cursors = position?.list === list ? position.cursors : [];
  const after = cursors.length === 0 ? "" : `&after=${encodeURIComponent(cursors.at(-1)!)}`;
  const resource = useResource<ObjectPage<Row> & Also>(list + after, cursors.length === 0);
  const move = (to: readonly string[]) => setPosition({ list, cursors: to });
  return { ...resource, cursors, move };
}

interface ObjectTableProps<Row> {
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  readonly empty: ComponentChildren;
  readonly title?: string;
  readonly aside?: ComponentChildren;
  readonly objects: ReturnType<typeof useObjects<Row & Listed>>;
}

export function ObjectTable<Row extends Listed>(props: ObjectTableProps<Row>) {
  const { label, columns, empty, title, aside, objects } = props;
  const { data, error, cursors, move } = objects;
  return (
    <Panel title={title!} aside={aside} isFlush>
      <Table {...{ label, columns, error, empty }} rows={data?.data} keyOf={({ id }) => id} />
      {data !== undefined && (
        <Pager
          first={cursors.length * PAGE_SIZE}
          count={data.data.length}
          hasMore={data.has_more}
          onPrevious={cursors.length === 0 ? undefined : () => move(cursors.slice(0, -1))}
          onNext={() => move([...cursors, data.data.at(-1)!.id])}
        />
      )}
    </Panel>
  );
}

interface NoObjectProps {
  readonly title: string;
  readonly isFiltered?: boolean;
  /** The use of the objects. */
  readonly children: ComponentChildren;
  /** The path of the address, and the arguments of curl after the address and the key. */
  readonly example?: readonly [path: string, rest: string];
}

/** An empty list. Without filters it shows how the API makes the first object. */
export function NoObject({ title, isFiltered = false, children, example }: NoObjectProps) {
  if (isFiltered) {
    return (
      <Empty title="No matches">
        <p>Choose another filter to see other entries.</p>
      </Empty>
    );
  }
  return (
    <Empty title={title}>
      <p>{children}</p>
      {example && (
        <div class="example">
          <Code
            action="Copy"
            text={`curl ${gatewayUrl}${example[0]} \\\n  -H "Authorization: Bearer $SECRET_KEY" \\\n  ${example[1]}`}
            hint={
              <>
                <code>SECRET_KEY</code> is a <Link page="keys">secret key</Link>.
              </>
            }
          />
        </div>
      )}
    </Empty>
  );
}

/** Returns metadata such as "customer: 12, team: Support". Undefined if there are none. */
export function metadataText(metadata: Readonly<Record<string, string>> | null) {
  const fields = Object.entries(metadata ?? {}).map(([name, value]) => `${name}: ${value}`);
  return fields.length === 0 ? undefined : fields.join(", ");
}

const TONES: Readonly<Record<string, "good" | "bad" | "warn">> = {
  ...{ completed: "good", processed: "good", succeeded: "good", answered: "good" },
  ...{ failed: "bad", error: "bad", expired: "warn", cancelling: "warn", incomplete: "warn" },
};

/**
 * Returns the column with the time at which an object was created, and its id.
 *
 * @param page the page with the details of one object, if there is one
 */
export function createdColumn<Row extends { readonly id: string; readonly created_at: string }>(
  page?: string,
): Column<Row> {
  return {
    title: "Created",
    cell({ id, created_at: at }) {
      const time = <Time iso={at} form="exact" />;
      return (
        <span>
          {page === undefined ? (
            time
          ) : (
            <Link page={page} query={{ id }}>
              {time}
            </Link>
          )}
          <ShortId id={id} isSub />
        </span>
      );
    },
  };
}

export function StatusBadge({ status }: { readonly status: string }) {
  return <Badge tone={TONES[status] ?? "neutral"}>{titled(status)}</Badge>;
}

/** Opens the content of a file as a download. The address is valid without a session, for one hour. */
export const downloadFile = (id: string) =>
  perform("The download begins.", async () => {
    const path = `objects/files/${id}/download_url`;
    const { url } = await call<{ url: string }>("POST", path);
    const link = document.createElement("a");
    link.href = url;
    link.rel = "noreferrer";
    link.click();
  });

interface ConfirmedCall {
  readonly title: string;
  readonly action: string;
  readonly children: ComponentChildren;
  /** Message after success. */
  readonly done: string;
  readonly method: "POST" | "DELETE";
  /** Path below api/. */
  readonly path: string;
  onDone(): void;
}

/** Returns a function that asks for confirmation of a call, and the dialog to render. */
export function useConfirmedCall() {
  const [confirmed, ask] = useState<ConfirmedCall>();
  const close = () => ask(undefined);
  const dialog = confirmed && (
    <Confirm
      title={confirmed.title}
      action={confirmed.action}
      onClose={close}
      onConfirm={async () => {
        await call(confirmed.method, confirmed.path);
        toast(confirmed.done);
        close();
        confirmed.onDone();
      }}
    >
      {confirmed.children}
    </Confirm>
  );
  return { ask, dialog };
}
