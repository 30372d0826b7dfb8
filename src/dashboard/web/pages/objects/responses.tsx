import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Button } from "../../components/controls.tsx";
import { Dialog, messageOf, toast } from "../../components/dialog.tsx";
import { Badge } from "../../components/display.tsx";
import { ActionMenu, type MenuItem } from "../../components/menu.tsx";
import { type Section, Sections } from "../../components/sections.tsx";
import type { Column } from "../../components/table.tsx";
import { bytes, integer, usdFine } from "../../format.ts";
import { useKeyNames } from "../key-names.ts";
import {
  createdColumn,
  metadataText,
  NoObject,
  ObjectTable,
  StatusBadge,
  useConfirmedCall,
  useObjects,
} from "./object-list.tsx";

interface StoredResponse {
  readonly id: string;
  readonly status: string;
  readonly model: string | null;
  readonly prompt_tokens: number | null;
  readonly completion_tokens: number | null;
  /** Null while it runs. */
  readonly cost_usd: number | null;
  readonly bytes: number;
  readonly key_id: string | null;
  readonly created_at: string;
}

interface Conversation {
  readonly id: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly bytes: number;
  readonly key_id: string | null;
  readonly created_at: string;
}

/** An item of a response or a conversation, in the form of the Responses API. */
interface Item {
  readonly id?: string;
  readonly type: string;
  readonly role?: string;
  readonly content?: string | readonly { readonly type: string; readonly text?: string }[];
}

interface Contents {
  readonly title: string;
  readonly items: readonly Item[];
  readonly hasMore: boolean;
}

interface ItemPage {
  readonly data: readonly Item[];
  readonly has_more: boolean;
}

/** Returns the texts of an item. An item of another kind is shown as JSON. */
function textOf(item: Item): string {
  const { content } = item;
  if (typeof content === "string") return content;
  const texts = content?.map(({ type, text }) => text ?? `[${type}]`);
  return texts === undefined ? JSON.stringify(item, null, 2) : texts.join("\n");
}

function ContentsDialog({ contents, onClose }: { contents: Contents; onClose(): void }) {
  return (
    <Dialog title={contents.title} onClose={onClose}>
      <div class="items">
        {contents.items.length === 0 && <p class="quiet">No items</p>}
        {contents.items.map((item, position) => (
          <article key={item.id ?? position}>
            <Badge>{item.role ?? item.type}</Badge>
            <p class="said">{textOf(item)}</p>
          </article>
        ))}
        {contents.hasMore && (
          <p class="quiet">Only the first items are shown. The API lists all of them.</p>
        )}
      </div>
      <footer class="actions">
        <Button onClick={onClose}>Close</Button>
      </footer>
    </Dialog>
  );
}

/** Returns a function that opens contents, and the dialog to render. */
function useContents() {
  const [contents, setContents] = useState<Contents>();
  const open = async (load: () => Promise<Contents>) => {
    try {
      setContents(await load());
    } catch (error) {
      toast(messageOf(error), true);
    }
  };
  const dialog = contents && (
    <ContentsDialog contents={contents} onClose={() => setContents(undefined)} />
  );
  return { open, dialog };
}

const openItem = (onSelect: () => void): MenuItem => ({
  ...{ label: "Open", icon: "eye", needs: "responses", onSelect },
});
const deleteItem = (onSelect: () => void): MenuItem => ({
  ...{ label: "Delete", icon: "trash-2", isDanger: true, needs: "responses", onSelect },
});

function ResponsesSection() {
  const responses = useObjects<StoredResponse>("responses");
  const keyName = useKeyNames();
  const { ask, dialog } = useConfirmedCall();
  const contents = useContents();
  const load = async (id: string): Promise<Contents> => {
    const answer = await call<{ response: { output?: readonly Item[] }; input: ItemPage }>(
      "POST",
      `objects/responses/${id}/content`,
    );
    const items = [...answer.input.data, ...(answer.response.output ?? [])];
    return { title: "Response", items, hasMore: answer.input.has_more };
  };
  const remove = ({ id }: StoredResponse) =>
    ask({
      ...{ title: "Delete this response?", action: "Delete response" },
      ...{ done: "Deleted the response.", method: "DELETE", path: `objects/responses/${id}` },
      onDone: responses.reload,
      children: "Its contents are deleted, and no response can continue from it.",
    });
  const columns: Column<StoredResponse>[] = [
    createdColumn(),
    { title: "Status", isCorner: true, cell: ({ status }) => <StatusBadge status={status} /> },
    { title: "Model", cell: ({ model }) => model ?? <span class="quiet">—</span> },
    { title: "Key", isSecondary: true, cell: ({ key_id: id }) => keyName(id) },
    {
      title: "Tokens",
      isNumber: true,
      isSecondary: true,
      cell: ({ prompt_tokens: prompt, completion_tokens: completion }) =>
        prompt === null ? "—" : `${integer(prompt)} → ${integer(completion ?? 0)}`,
    },
    { title: "Size", isNumber: true, isSecondary: true, cell: (row) => bytes(row.bytes) },
    {
      title: "Cost",
      isNumber: true,
      cell: ({ cost_usd: cost }) => (cost === null ? "—" : usdFine(cost)),
    },
    actionsColumn((row) => void contents.open(() => load(row.id)), remove),
  ];
  return (
    <>
      <ObjectTable
        label="Responses"
        columns={columns}
        objects={responses}
        empty={
          <NoObject
            title="No stored responses yet"
            example={[
              "v1/responses",
              `-H "Content-Type: application/json" -d '{"model": "sandbox/chat", "input": "Hi"}'`,
            ]}
          >
            The Responses API stores answers for 30 days, unless a request has store: false.
          </NoObject>
        }
      />
      {dialog}
      {contents.dialog}
    </>
  );
}

/** Returns the column of actions on an object with contents. */
function actionsColumn<Row extends { readonly id: string }>(
  onOpen: (row: Row) => void,
  onDelete: (row: Row) => void,
): Column<Row> {
  return {
    title: "Actions",
    isAction: true,
    cell: (row) => (
      <ActionMenu
        label={`Actions for ${row.id}`}
        items={[openItem(() => onOpen(row)), deleteItem(() => onDelete(row))]}
      />
    ),
  };
}

function ConversationsSection() {
  const conversations = useObjects<Conversation>("conversations");
  const keyName = useKeyNames();
  const { ask, dialog } = useConfirmedCall();
  const contents = useContents();
  const load = async (id: string): Promise<Contents> => {
    const page = await call<ItemPage>("POST", `objects/conversations/${id}/content?limit=100`);
    return { title: "Conversation", items: page.data, hasMore: page.has_more };
  };
  const remove = ({ id }: Conversation) =>
    ask({
      ...{ title: "Delete this conversation?", action: "Delete conversation" },
      ...{ done: "Deleted the conversation.", method: "DELETE" },
      ...{ path: `objects/conversations/${id}`, onDone: conversations.reload },
      children: "No response can continue it. Its responses stay for up to 31 days.",
    });
  const columns: Column<Conversation>[] = [
    createdColumn(),
    {
      title: "Metadata",
      cell: ({ metadata }) => metadataText(metadata) ?? <span class="quiet">None</span>,
    },
    { title: "Key", isSecondary: true, cell: ({ key_id: id }) => keyName(id) },
    { title: "Size", isNumber: true, cell: (row) => bytes(row.bytes) },
    actionsColumn((row) => void contents.open(() => load(row.id)), remove),
  ];
  return (
    <>
      <ObjectTable
        label="Conversations"
        columns={columns}
        objects={conversations}
        empty={
          <NoObject
            title="No conversations yet"
            example={["v1/conversations", `-H "Content-Type: application/json" -d '{}'`]}
          >
            A conversation keeps the items of its responses until it is deleted.
          </NoObject>
        }
      />
      {dialog}
      {contents.dialog}
    </>
  );
}

export const RESPONSE_SECTIONS: readonly Section[] = [
  { name: "", title: "Responses", needs: "responses", Section: ResponsesSection },
  {
    ...{ name: "conversations", title: "Conversations" },
    ...{ needs: "responses" as const, Section: ConversationsSection },
  },
];

export function ResponsesPage() {
  return <Sections page="responses" title="Responses" sections={RESPONSE_SECTIONS} />;
}
