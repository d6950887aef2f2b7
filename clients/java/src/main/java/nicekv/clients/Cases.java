package nicekv.clients;

import java.util.Objects;
import java.util.concurrent.Callable;

/** What all cases share: where the gateway is, and one line for each outcome. */
final class Cases {
    static final String HOST = System.getenv("CLIENTS_HOST");
    static final int PORT = Integer.parseInt(System.getenv("CLIENTS_PORT"));
    static final int DATABASE = Integer.parseInt(System.getenv("CLIENTS_DATABASE"));
    /** Whether all keys of the database are of one partition. */
    static final boolean TOGETHER = "1".equals(System.getenv("CLIENTS_TOGETHER"));
    /** As long as no datagram takes. */
    static final String LONG = "five ".repeat(1000);

    interface Case {
        void run() throws Exception;
    }

    /** The gateway has refused what docs/COMMANDS.md says that it refuses. */
    static final class Refused extends RuntimeException {
        Refused(String reply) {
            super(reply);
        }
    }

    private final String library;

    Cases(String library) {
        this.library = library;
    }

    /** Runs a case, and prints "outcome, library, case, detail", with tabs between. */
    void run(String name, Case body) {
        String outcome = "ok";
        String detail = "";
        try {
            body.run();
        } catch (Refused refused) {
            outcome = "refused";
            detail = refused.getMessage();
        } catch (Exception | AssertionError error) {
            outcome = "failed";
            detail = error.toString();
        }
        System.out.println(String.join("\t", outcome, library, name, detail.replaceAll("\\s+", " ").strip()));
    }

    static void equal(Object is, Object shouldBe) {
        if (!Objects.equals(is, shouldBe)) {
            throw new AssertionError(shorten(is) + ", should be " + shorten(shouldBe));
        }
    }

    private static String shorten(Object value) {
        String text = String.valueOf(value);
        return text.length() <= 200 ? text : text.substring(0, 200) + "...";
    }

    /** Calls what is refused unless all keys are of one partition. */
    static <T> T needsOnePartition(Callable<T> call) throws Exception {
        if (TOGETHER) {
            return call.call();
        }
        T value;
        try {
            value = call.call();
        } catch (Exception error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (String.valueOf(cause.getMessage()).contains("CROSSSLOT")) {
                    throw new Refused(cause.getMessage());
                }
            }
            throw error;
        }
        throw new AssertionError("not refused: " + shorten(value));
    }

    /** The version of the jar that a class is from, by the jar's name. */
    static String versionOf(Class<?> type) {
        String jar = type.getProtectionDomain().getCodeSource().getLocation().getPath();
        return jar.replaceAll(".*?-([0-9][^/]*?)(\\.RELEASE)?\\.jar$", "$1");
    }
}
