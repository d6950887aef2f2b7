// go-redis against a gateway, by RESP2 and by RESP3. `clients/run --help` says how it is started.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

type suite struct {
	client   *redis.Client
	ctx      context.Context
	together bool
}

func main() {
	database, err := strconv.Atoi(os.Getenv("CLIENTS_DATABASE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "CLIENTS_DATABASE:", err)
		os.Exit(2)
	}
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{
			Addr:     os.Getenv("CLIENTS_HOST") + ":" + os.Getenv("CLIENTS_PORT"),
			DB:       database,
			Protocol: protocol,
		})
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		s := &suite{client, ctx, os.Getenv("CLIENTS_TOGETHER") == "1"}
		for _, c := range cases {
			report(fmt.Sprintf("go-redis %s RESP%d", redis.Version(), protocol), c.name, c.run(s))
		}
		if err := client.FlushDB(ctx).Err(); err != nil {
			fmt.Fprintln(os.Stderr, "FLUSHDB:", err)
			os.Exit(1)
		}
		cancel()
		client.Close()
	}
}
