/** What fine-tuning needs of an organization's files. */
export interface TrainingFiles {
  /** Undefined where the organization has no such file. */
  find(organizationId: string, fileId: string): Promise<TrainingFile | undefined>;
  /** Undefined where there is no such file any more. */
  open(organizationId: string, fileId: string): Promise<ReadableStream<Uint8Array> | undefined>;
}

export interface TrainingFile {
  readonly bytes: number;
  readonly purpose: string;
}
