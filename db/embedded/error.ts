/** Its message is one line for the operator, with the way out where there is one. */
export class EmbeddedPostgresError extends Error {
  override readonly name = "EmbeddedPostgresError";
}
