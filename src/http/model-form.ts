import type { TSchema } from "typebox";
import { GatewayError } from "../lib/errors.ts";
import { FormFields } from "./form-fields.ts";
import {
  type FormFileHeading,
  type FormFileReceiver,
  type FormLimits,
  type FormReceiver,
  leastFileBytes,
  type Pace,
  readForm,
} from "./multipart.ts";
import { type BodyConnection, MAX_WHOLE_BYTES } from "./read-body.ts";
import type {
  FilesOfRequest,
  SpooledFile,
  SpooledMedia,
  SpooledUploads,
} from "./spooled-uploads.ts";
import { createCheck } from "./validate.ts";

/** The form (multipart/form-data) that a billed endpoint accepts. */
export interface ModelForm {
  /** Schema of all fields except files. Texts are converted to the types of its members. */
  readonly fields: TSchema;
  /** Rules of the files by part name. */
  readonly files: Readonly<Record<string, FileRule>>;
  /**
   * Validates the form further. If it resolves with a value, the value replaces the form as the
   * body. Throws 400 if the form is invalid.
   */
  readonly examine?: (form: ReceivedForm, owner: string, signal: AbortSignal) => Promise<unknown>;
}

export interface FileRule {
  readonly isRequired?: true;
  /** Maximum number of parts with this name, or with this name and `[]`. */
  readonly maxFiles: number;
  /** Bytes of each file. */
  readonly maxBytes: number;
  /** Error code for a larger file. */
  readonly excess: "invalid_body" | "payload_too_large";
  /** Allowed content types, detected from the bytes of the file. */
  readonly types: ReadonlySet<string>;
  /** The allowed types as error messages name them. */
  readonly typeNames: string;
  /** Validates the content of the file. Rejects if the content is not acceptable. */
  check?(file: SpooledMedia, name: string): Promise<void>;
}

/** A form as the endpoint receives it, instead of a JSON body. */
export interface ReceivedForm<Fields = Readonly<Record<string, unknown>>> {
  readonly fields: Fields;
  /** Files by part name, in order of arrival. They are on disk until the request ends. */
  readonly files: Readonly<Record<string, readonly SpooledMedia[]>>;
}

export interface ReadModelForm extends ReceivedForm {
  /** The body that the endpoint receives. */
  readonly body: unknown;
  /** Fields and file hashes as text. Equal for equal requests, whatever their boundaries. */
  readonly text: string;
  /** Removes the files. Can be called more than once. */
  release(): void;
}

export interface FormDependencies extends Pace {
  readonly files: SpooledUploads;
}

const MEBIBYTE = 1024 * 1024;
const MAX_FIELDS = 128;
/** Bytes of one field: a prompt of 32,000 characters of four bytes each. */
const MAX_FIELD_BYTES = 131_072;
const MAX_OTHER_BYTES = 524_288;
/** Bytes of all files of a form. */
const MAX_FORM_FILE_BYTES = 256 * MEBIBYTE;

type Reader = (
  request: Request,
  connection: BodyConnection,
  dependencies: FormDependencies,
) => Promise<ReadModelForm>;

/**
 * Returns a reader for the forms of one endpoint. The reader checks the content type (415), the
 * size, and the caller's rate and money. Then it reads the parts and writes the files to disk as
 * they arrive. It throws 400, 402, 413, 415, 429, 499, 503.
 */
export function createFormReader(form: ModelForm): Reader {
  const limits = limitsOf(form);
  const check = createCheck(form.fields, "invalid_body", "Form");
  return async (request, connection, dependencies) => {
    leastFileBytes(request, limits);
    if (!isShort(request.headers)) await connection.admitLongBody();
    connection.keepOpenForBody();
    const receiver = new PartsOfForm(form, dependencies.files.begin(connection.owner));
    try {
      const { clock, minBytesPerSecond } = dependencies;
      await readForm(request, receiver, { ...limits, clock, minBytesPerSecond });
      const read = await receiver.read();
      check(read.fields);
      const body = await form.examine?.(read, connection.owner, request.signal);
      return { ...read, body: body ?? read };
    } catch (error) {
      receiver.release();
      throw error;
    }
  };
}

function isShort(headers: Headers): boolean {
  if (headers.has("transfer-encoding")) return false;
  const stated = headers.get("content-length");
  return stated !== null && Number(stated) <= MAX_WHOLE_BYTES;
}

function limitsOf({ files }: ModelForm): FormLimits {
  const rules = Object.entries(files);
  const fileBytes = rules.reduce((sum, [, rule]) => sum + rule.maxFiles * rule.maxBytes, 0);
  const [first] = rules;
  return {
    files: rules.reduce((sum, [, rule]) => sum + rule.maxFiles, 0),
    fileBytes: Math.min(fileBytes, MAX_FORM_FILE_BYTES),
    fields: MAX_FIELDS,
    fieldBytes: MAX_FIELD_BYTES,
    otherBytes: MAX_OTHER_BYTES,
    tooLarge: () =>
      rules.length === 1 && fileBytes <= MAX_FORM_FILE_BYTES
        ? tooLarge(first![0], first![1])
        : new GatewayError(
            "payload_too_large",
            `The files of a form may have at most ${Math.min(fileBytes, MAX_FORM_FILE_BYTES) / MEBIBYTE} MB together.`,
          ),
  };
}

interface ReceivedFile {
  readonly name: string;
  readonly rule: FileRule;
  readonly file: Promise<SpooledFile>;
}

/** Receives the parts of one form. */
class PartsOfForm implements FormReceiver {
  readonly #form: ModelForm;
  readonly #files: FilesOfRequest;
  readonly #fields: FormFields;
  readonly #received: ReceivedFile[] = [];

  constructor(form: ModelForm, files: FilesOfRequest) {
    this.#form = form;
    this.#files = files;
    this.#fields = new FormFields(form.fields);
  }

  field(name: string, value: string): void {
    if (Object.hasOwn(this.#form.files, partName(name))) {
      throw invalid(name, "must be a file, with a filename");
    }
    this.#fields.add(name, value);
  }

  async file(part: string, _heading: FormFileHeading): Promise<FormFileReceiver> {
    const name = partName(part);
    const rule = Object.hasOwn(this.#form.files, name) ? this.#form.files[name] : undefined;
    if (rule === undefined) throw invalid(part, "must not be a file here");
    const count = this.#received.filter((received) => received.name === name).length;
    if (count >= rule.maxFiles) {
      const most = rule.maxFiles === 1 ? "once" : `${rule.maxFiles} times`;
      throw invalid(name, `may be given at most ${most}`);
    }
    const created = this.#files.create();
    // Added before the first await, because the next part can arrive during the wait.
    this.#received.push({ name, rule, file: created });
    const file = await created;
    return {
      async write(piece) {
        if (file.sizeBytes + piece.byteLength > rule.maxBytes) throw tooLarge(name, rule);
        await file.write(piece);
      },
      end: async () => undefined,
    };
  }

  /**
   * Returns the form after all parts have arrived. Throws 400 if a file is missing or has a wrong
   * type.
   */
  async read(): Promise<Omit<ReadModelForm, "body">> {
    const files: Record<string, SpooledMedia[]> = {};
    const hashes: [string, string][] = [];
    for (const { name, rule, file: created } of this.#received) {
      const file = await created;
      const type = await typeOf(file, name, rule);
      files[name] ??= [];
      const media = file.media(`${name}.${type.extension}`, type.contentType);
      await rule.check?.(media, name);
      files[name].push(media);
      hashes.push([name, file.digest()]);
    }
    for (const [name, { isRequired }] of Object.entries(this.#form.files)) {
      if (isRequired && !Object.hasOwn(files, name)) throw invalid(name, "is missing");
    }
    const fields = this.#fields.value;
    const release = () => this.release();
    return { fields, files, text: JSON.stringify([fields, hashes]), release };
  }

  release(): void {
    this.#files.release();
  }
}

/** Returns the part name without `[]`: `image[]` and `image` are the same part. */
function partName(part: string): string {
  return part.endsWith("[]") ? part.slice(0, -2) : part;
}

interface FileType {
  readonly contentType: string;
  readonly extension: string;
}

/**
 * Returns the type of a file, detected from its bytes and not from the client's headers. Throws 400
 * if the file is empty or its type is not allowed.
 */
async function typeOf(file: SpooledFile, name: string, rule: FileRule): Promise<FileType> {
  if (file.sizeBytes === 0) throw invalid(name, "is empty");
  const { fileTypeFromBuffer } = await import("file-type");
  const detected = await fileTypeFromBuffer(file.head);
  // The parameters name codecs, which are not needed here.
  const contentType = detected?.mime.split(";", 1)[0] ?? "";
  if (detected === undefined || !rule.types.has(contentType)) {
    throw invalid(name, `must be ${rule.typeNames}`);
  }
  return { contentType, extension: detected.ext };
}

function tooLarge(name: string, { maxBytes, excess }: FileRule): GatewayError {
  const message = `The form's file "${name}" may have at most ${maxBytes / MEBIBYTE} MB.`;
  return new GatewayError(excess, message, { param: name });
}

function invalid(name: string, what: string): GatewayError {
  const param = name.slice(0, 100);
  return new GatewayError("invalid_body", `The form's part "${param}" ${what}.`, { param });
}
