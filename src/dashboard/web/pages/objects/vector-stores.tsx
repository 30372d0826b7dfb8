import { Button, Choice, Link } from "../../components/controls.tsx";
import { Fact, Notice, Panel, ShortId, Time } from "../../components/display.tsx";
import { ActionMenu } from "../../components/menu.tsx";
import type { Column } from "../../components/table.tsx";
import { bytes, integer } from "../../format.ts";
import { useResource } from "../../resource.ts";
import { changeQuery, hrefOf, navigate, query } from "../../router.ts";
import { useKeyNames } from "../key-names.ts";
import {
  NoObject,
  ObjectTable,
  StatusBadge,
  useConfirmedCall,
  useObjects,
} from "./object-list.tsx";

interface VectorStore {
  readonly id: string;
  readonly name: string | null;
  readonly status: string;
  readonly usage_bytes: number;
  readonly file_counts: {
    readonly total: number;
    readonly in_progress: number;
    readonly failed: number;
  };
  readonly key_id: string | null;
  readonly created_at: string;
  readonly last_active_at: string;
  readonly expires_at: string | null;
}

interface StoreFile {
  readonly id: string;
  readonly filename: string | null;
  readonly status: string;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly usage_bytes: number;
  readonly embedding_model: string | null;
  readonly created_at: string;
}

const PAGE = "storage/vector-stores";
const nameOf = ({ name, id }: VectorStore) => name ?? id;

/** The list of vector stores, or one store. */
export function VectorStoresSection() {
  const id = query.value.get("id");
  return id === null ? <StoreList /> : <StoreDetail id={id} />;
}

function FileCounts({ store: { file_counts: counts } }: { readonly store: VectorStore }) {
  return (
    <span>
      {integer(counts.total)}
      {counts.failed > 0 && <span class="sub bad">{integer(counts.failed)} failed</span>}
      {counts.in_progress > 0 && <span class="sub">{integer(counts.in_progress)} in progress</span>}
    </span>
  );
}

function StoreList() {
  const stores = useObjects<VectorStore>("vector_stores");
  const keyName = useKeyNames();
  const columns: Column<VectorStore>[] = [
    {
      title: "Name",
      cell: (store) => (
        <span>
          <Link page={PAGE} query={{ id: store.id }} class="strong">
            {nameOf(store)}
          </Link>
          {store.name !== null && <ShortId id={store.id} isSub />}
        </span>
      ),
    },
    { title: "Status", isCorner: true, cell: ({ status }) => <StatusBadge status={status} /> },
    { title: "Files", isNumber: true, cell: (store) => <FileCounts store={store} /> },
    { title: "Size", isNumber: true, cell: (store) => bytes(store.usage_bytes) },
    { title: "Key", isSecondary: true, cell: ({ key_id: id }) => keyName(id) },
    { title: "Last used", cell: ({ last_active_at: at }) => <Time iso={at} /> },
    {
      title: "Expires",
      isSecondary: true,
      cell: ({ expires_at: at }) => <Time iso={at} otherwise="Never" />,
    },
  ];
  return (
    <ObjectTable
      label="Vector stores"
      columns={columns}
      objects={stores}
      empty={
        <NoObject
          title="No vector stores yet"
          example={[
            "v1/vector_stores",
            `-H "Content-Type: application/json" -d '{"name": "Handbook"}'`,
          ]}
        >
          A vector store indexes files, so that models can search them.
        </NoObject>
      }
    />
  );
}

function StoreDetail({ id }: { readonly id: string }) {
  const path = `objects/vector_stores/${encodeURIComponent(id)}`;
  const { data: store, error, reload } = useResource<VectorStore>(path, true);
  const keyName = useKeyNames();
  const { ask, dialog } = useConfirmedCall();
  const remove = (name: string) =>
    ask({
      ...{ title: "Delete this vector store?", action: "Delete vector store" },
      ...{ done: `Deleted ${name}.`, method: "DELETE", path },
      onDone: () => navigate(hrefOf(PAGE)),
      children: (
        <>
          <b>{name}</b> and its index are deleted. Searches in it fail. Its files stay in the
          storage.
        </>
      ),
    });
  return (
    <>
      <p class="back">
        <Link page={PAGE}>← Vector stores</Link>
      </p>
      {error !== undefined && <Notice tone="bad">{error}</Notice>}
      {store !== undefined && (
        <Panel
          title={nameOf(store)}
          aside={
            <Button variant="danger" needs="files:write" onClick={() => remove(nameOf(store))}>
              Delete
            </Button>
          }
        >
          <dl class="facts">
            <Fact name="Status" value={<StatusBadge status={store.status} />} />
            <Fact name="Id" value={<span class="code">{store.id}</span>} />
            <Fact name="Files" value={<FileCounts store={store} />} />
            <Fact name="Size" value={bytes(store.usage_bytes)} />
            <Fact name="Key" value={keyName(store.key_id)} />
            <Fact name="Created" value={<Time iso={store.created_at} form="exact" />} />
            <Fact name="Last used" value={<Time iso={store.last_active_at} />} />
            <Fact name="Expires" value={<Time iso={store.expires_at} otherwise="Never" />} />
          </dl>
        </Panel>
      )}
      {store !== undefined && <StoreFiles {...{ path, onChanged: reload }} />}
      {dialog}
    </>
  );
}

interface StoreFilesProps {
  /** Path of the store below api/. */
  readonly path: string;
  onChanged(): void;
}

function StoreFiles({ path, onChanged }: StoreFilesProps) {
  const status = query.value.get("status") ?? "";
  const files = useObjects<StoreFile>(`${path.slice("objects/".length)}/files`, { status });
  const { ask, dialog } = useConfirmedCall();
  const remove = ({ id, filename }: StoreFile) =>
    ask({
      ...{ title: "Remove this file?", action: "Remove file", done: "Removed the file." },
      ...{ method: "DELETE", path: `${path}/files/${id}` },
      onDone() {
        files.reload();
        onChanged();
      },
      children: (
        <>
          Searches in this vector store no longer find <b>{filename ?? id}</b>. The file stays in
          the storage.
        </>
      ),
    });
  const columns: Column<StoreFile>[] = [
    {
      title: "File",
      cell: ({ id, filename }) => (
        <span>
          {filename ?? <span class="quiet">Deleted file</span>}
          <ShortId id={id} isSub />
        </span>
      ),
    },
    {
      title: "Status",
      isCorner: true,
      cell: (file) => (
        <span class="stacked">
          <StatusBadge status={file.status} />
          {file.error && <span class="sub">{file.error.message}</span>}
        </span>
      ),
    },
    { title: "Size", isNumber: true, cell: (file) => bytes(file.usage_bytes) },
    {
      title: "Embedding model",
      isSecondary: true,
      cell: ({ embedding_model: model }) => model ?? <span class="quiet">Words only</span>,
    },
    { title: "Added", isSecondary: true, cell: ({ created_at: at }) => <Time iso={at} /> },
    {
      title: "Actions",
      isAction: true,
      cell: (file) => (
        <ActionMenu
          label={`Actions for ${file.filename ?? file.id}`}
          items={[
            {
              ...{ label: "Remove", icon: "trash-2", isDanger: true, needs: "files:write" },
              onSelect: () => remove(file),
            },
          ]}
        />
      ),
    },
  ];
  return (
    <>
      <ObjectTable
        label="Files of the vector store"
        title="Files"
        aside={
          <Choice
            label="Status"
            value={status}
            isInline
            options={[
              ["", "All"],
              ["failed", "Failed"],
              ["in_progress", "In progress"],
              ["completed", "Completed"],
            ]}
            onChange={(value) => changeQuery({ status: value })}
          />
        }
        columns={columns}
        objects={files}
        empty={
          <NoObject title="No files in this vector store" isFiltered={status !== ""}>
            Programs add files with the API.
          </NoObject>
        }
      />
      {dialog}
    </>
  );
}
