import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.core.http.StreamResponse;
import com.openai.errors.InternalServerException;
import com.openai.errors.NotFoundException;
import com.openai.errors.OpenAIIoException;
import com.openai.errors.OpenAIServiceException;
import com.openai.errors.PermissionDeniedException;
import com.openai.errors.UnauthorizedException;
import com.openai.helpers.ChatCompletionAccumulator;
import com.openai.models.chat.completions.ChatCompletion;
import com.openai.models.chat.completions.ChatCompletionChunk;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionStreamOptions;
import com.openai.models.chat.completions.ChatCompletionToolChoiceOption;
import com.openai.models.embeddings.EmbeddingCreateParams;
import java.time.Duration;
import java.util.List;

/** Checks of OpenAI's client in Java. Each prints what became of it as a line of JSON. */
public class Checks {
  static final String MODEL = "openai/gpt-4o-mini";
  static final OpenAIClient CLIENT = client(System.getenv("SECRET_KEY"), 0);

  static OpenAIClient client(String key, int retries) {
    return OpenAIOkHttpClient.builder()
        .baseUrl(System.getenv("GATEWAY_URL") + "/v1")
        .apiKey(key)
        .maxRetries(retries)
        .build();
  }

  static ChatCompletionCreateParams.Builder ask(String model) {
    return ChatCompletionCreateParams.builder().model(model).addUserMessage("How are you?");
  }

  public static class Person {
    public String name;
    public int age;
  }

  public static class GetWeather {
    public String city;
  }

  interface Check {
    void run() throws Exception;
  }

  static void check(String tried, Check check) {
    String error = "null";
    try {
      check.run();
    } catch (Throwable thrown) {
      error = "\"" + thrown.toString().replace("\\", "/").replace("\"", "'").replaceAll("\\s+", " ") + "\"";
    }
    System.out.println(
        "{\"client\":\"openai-java\",\"tried\":\"" + tried + "\",\"error\":" + error + "}");
  }

  static void expect(boolean isTrue, Object seen) {
    if (!isTrue) throw new AssertionError(seen);
  }

  static void refused(Class<? extends OpenAIServiceException> kind, int status, String code, Check call)
      throws Exception {
    try {
      call.run();
    } catch (OpenAIServiceException error) {
      expect(kind.isInstance(error) && error.statusCode() == status, error);
      expect(error.code().orElse("").equals(code), error);
      return;
    }
    throw new AssertionError(status + " was not raised");
  }

  public static void main(String[] arguments) {
    check("models: list and retrieve", Checks::models);
    check("chat: answer and usage", Checks::chat);
    check("chat: streamed, with usage", Checks::streamed);
    check("tools: a call by a class", Checks::tools);
    check("structured output: by a class", Checks::structured);
    check("embeddings", Checks::embeddings);
    check("errors: each in its own class", Checks::errors);
    check("retries and timeouts", Checks::retries);
    System.exit(0);
  }

  static void models() {
    boolean isListed = false;
    for (var model : CLIENT.models().list().autoPager()) isListed |= model.id().equals(MODEL);
    expect(isListed, "not listed");
    expect(CLIENT.models().retrieve(MODEL).ownedBy().equals("openai"), "not retrieved");
  }

  static void chat() {
    ChatCompletion answer = CLIENT.chat().completions().create(ask(MODEL).build());
    expect(!answer.choices().get(0).message().content().orElse("").isEmpty(), answer);
    expect(answer.usage().get().totalTokens() > 0, answer);
  }

  static void streamed() {
    var params =
        ask(MODEL)
            .streamOptions(ChatCompletionStreamOptions.builder().includeUsage(true).build())
            .build();
    var whole = ChatCompletionAccumulator.create();
    try (StreamResponse<ChatCompletionChunk> stream =
        CLIENT.chat().completions().createStreaming(params)) {
      stream.stream().forEach(whole::accumulate);
    }
    var answer = whole.chatCompletion();
    expect(!answer.choices().get(0).message().content().orElse("").isEmpty(), answer);
    expect(answer.usage().get().completionTokens() > 0, answer);
  }

  static void tools() {
    var params =
        ask(MODEL)
            .addTool(GetWeather.class)
            .toolChoice(ChatCompletionToolChoiceOption.Auto.REQUIRED)
            .build();
    var calls = CLIENT.chat().completions().create(params).choices().get(0).message().toolCalls();
    var call = calls.get().get(0).asFunction().function();
    expect(call.arguments(GetWeather.class).city != null, call);
  }

  static void structured() {
    var answer = CLIENT.chat().completions().create(ask(MODEL).responseFormat(Person.class).build());
    expect(answer.choices().get(0).message().content().get().name != null, answer);
  }

  static void embeddings() {
    var params =
        EmbeddingCreateParams.builder()
            .model("sandbox/embed")
            .inputOfArrayOfStrings(List.of("one", "two"))
            .build();
    var answer = CLIENT.embeddings().create(params);
    expect(answer.data().size() == 2 && !answer.data().get(0).embedding().isEmpty(), answer);
  }

  static void errors() throws Exception {
    refused(UnauthorizedException.class, 401, "invalid_api_key", () -> call("sk-wrong", MODEL));
    String management = System.getenv("GATEWAY_MANAGEMENT_KEY");
    refused(
        PermissionDeniedException.class, 403, "wrong_key_kind", () -> call(management, MODEL));
    String poor = System.getenv("GATEWAY_POOR_KEY");
    refused(
        OpenAIServiceException.class, 402, "insufficient_credits", () -> call(poor, MODEL));
    String key = System.getenv("SECRET_KEY");
    refused(NotFoundException.class, 404, "model_not_found", () -> call(key, "openai/none"));
    refused(
        InternalServerException.class, 502, "provider_error", () -> call(key, "sandbox/error-500"));
  }

  static void call(String key, String model) {
    client(key, 0).chat().completions().create(ask(model).build());
  }

  static void retries() {
    var params = ask("test/recovering-java").build();
    var patient = client(System.getenv("SECRET_KEY"), 2);
    var answer = patient.chat().completions().create(params);
    expect(answer.choices().get(0).message().content().get().equals("recovered"), answer);
    var hasty = CLIENT.withOptions(options -> options.timeout(Duration.ofMillis(500)));
    try {
      hasty.chat().completions().create(ask("test/silent").build());
    } catch (OpenAIIoException error) {
      return;
    }
    throw new AssertionError("no timeout");
  }
}
