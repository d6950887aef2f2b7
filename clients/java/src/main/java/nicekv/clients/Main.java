package nicekv.clients;

/** Jedis, Lettuce, Redisson, and YCSB's commands by Jedis, against a gateway. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        JedisCases.run();
        LettuceCases.run();
        RedissonCases.run();
        YcsbCases.run();
        // Threads of the libraries may outlive their clients.
        System.exit(0);
    }
}
