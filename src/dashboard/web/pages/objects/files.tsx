import { Choice } from "../../components/controls.tsx";
import { Meter, ShortId, Time } from "../../components/display.tsx";
import { ActionMenu } from "../../components/menu.tsx";
import type { Column } from "../../components/table.tsx";
import { bytes, titled } from "../../format.ts";
import { changeQuery, query } from "../../router.ts";
import { useKeyNames } from "../key-names.ts";
import {
  downloadFile,
  NoObject,
  ObjectTable,
  StatusBadge,
  useConfirmedCall,
  useObjects,
} from "./object-list.tsx";

interface ListedFile {
  readonly id: string;
  readonly filename: string;
  readonly purpose: string;
  readonly bytes: number;
  readonly status: string;
  readonly status_details: string | null;
  readonly key_id: string | null;
  readonly created_at: string;
  readonly expires_at: string | null;
}

interface Storage {
  readonly used_bytes: number;
  readonly quota_bytes: number;
}

const PURPOSES = [
  ...["batch", "batch_output", "fine-tune", "fine-tune-results"],
  ...["assistants", "user_data", "vision"],
];
const purposeTitle = (purpose: string) =>
  titled(purpose.replace("fine-tune", "fine-tuning").replace("-results", " results"));

export function FilesSection() {
  const purpose = query.value.get("purpose") ?? "";
  const files = useObjects<ListedFile, Storage>("files", { purpose });
  const keyName = useKeyNames();
  const { ask, dialog } = useConfirmedCall();
  const { data } = files;
  const remove = ({ id, filename }: ListedFile) =>
    ask({
      ...{ title: "Delete this file?", action: "Delete file", done: `Deleted ${filename}.` },
      ...{ method: "DELETE", path: `objects/files/${id}`, onDone: files.reload },
      children: (
        <>
          The content of <b>{filename}</b> is deleted and the file is removed from its vector
          stores. This cannot be undone. Running batches and fine-tuning jobs keep their copy.
        </>
      ),
    });
  const columns: Column<ListedFile>[] = [
    {
      title: "Name",
      cell: ({ id, filename }) => (
        <span>
          <b class="strong">{filename}</b>
          <ShortId id={id} isSub />
        </span>
      ),
    },
    {
      title: "Status",
      isCorner: true,
      cell: ({ status, status_details: details }) => (
        <span class="stacked">
          <StatusBadge status={status} />
          {details && <span class="sub">{details}</span>}
        </span>
      ),
    },
    { title: "Purpose", cell: (file) => purposeTitle(file.purpose) },
    { title: "Size", isNumber: true, cell: (file) => bytes(file.bytes) },
    { title: "Key", isSecondary: true, cell: ({ key_id: id }) => keyName(id) },
    { title: "Created", cell: ({ created_at: at }) => <Time iso={at} /> },
    {
      title: "Expires",
      isSecondary: true,
      cell: ({ expires_at: at }) => <Time iso={at} otherwise="Never" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (file) => (
        <ActionMenu
          label={`Actions for ${file.filename}`}
          items={[
            {
              ...{ label: "Download", icon: "download", needs: "files:read" },
              onSelect: () => void downloadFile(file.id),
            },
            {
              ...{ label: "Delete", icon: "trash-2", isDanger: true, needs: "files:write" },
              onSelect: () => remove(file),
            },
          ]}
        />
      ),
    },
  ];
  return (
    <>
      <div class="filters">
        <Choice
          label="Purpose"
          value={purpose}
          options={[["", "All"], ...PURPOSES.map((one) => [one, purposeTitle(one)] as const)]}
          onChange={(value) => changeQuery({ purpose: value })}
        />
        {data !== undefined && (
          <Meter
            label="Storage of the organization"
            share={data.used_bytes / Math.max(data.quota_bytes, 1)}
            text={`${bytes(data.used_bytes)} of ${bytes(data.quota_bytes)} used`}
          />
        )}
      </div>
      <ObjectTable
        label="Files"
        columns={columns}
        objects={files}
        empty={
          <NoObject
            title="No files yet"
            isFiltered={purpose !== ""}
            example={["v1/files", "-F purpose=batch -F file=@requests.jsonl"]}
          >
            Batches, fine-tuning jobs and vector stores read files. Programs upload them.
          </NoObject>
        }
      />
      {dialog}
    </>
  );
}
