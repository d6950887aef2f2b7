package main

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var cases = []testCase{
	{"TxPipelined, keys with a tag", txPipelined},
	{"TxPipelined over many keys", txPipelinedMany},
	{"TxPipelined with 5,000 bytes", txPipelinedLong},
	{"Pipelined over many keys", pipelined},
	{"Pipelined with 5,000 bytes", pipelinedLong},
	{"Watch, against other writers", watch},
	{"Script", script},
	{"hashes, scanned into a struct", hashes},
	{"Subscribe and PSubscribe", subscribe},
	{"Scan with an iterator", scan},
	{"SetArgs, GetEx, expiry", expiry},
}

func txPipelined(s *suite) error {
	var n *redis.IntCmd
	_, err := s.client.TxPipelined(s.ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(s.ctx, "{tx}:a", 1, time.Minute)
		n = pipe.IncrBy(s.ctx, "{tx}:a", 4)
		pipe.HSet(s.ctx, "{tx}:h", "f", "v")
		return nil
	})
	return first(err, equal(n.Val(), int64(5)))
}

func txPipelinedMany(s *suite) error {
	_, err := s.client.TxPipelined(s.ctx, func(pipe redis.Pipeliner) error {
		for n := range 50 {
			pipe.Set(s.ctx, fmt.Sprintf("many:%d", n), n, 0)
		}
		return nil
	})
	return s.needsOnePartition(err)
}

func txPipelinedLong(s *suite) error {
	long := strings.Repeat("five ", 1000)
	var got *redis.StringCmd
	_, err := s.client.TxPipelined(s.ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(s.ctx, "{long}:a", long, 0)
		got = pipe.Get(s.ctx, "{long}:a")
		return nil
	})
	return first(err, equal(got.Val(), long))
}

func pipelined(s *suite) error {
	replies, err := s.client.Pipelined(s.ctx, func(pipe redis.Pipeliner) error {
		for n := range 500 {
			pipe.Set(s.ctx, fmt.Sprintf("plain:%d", n), n, 0)
		}
		for n := range 500 {
			pipe.Get(s.ctx, fmt.Sprintf("plain:%d", n))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for n, reply := range replies[500:] {
		if err := equal(reply.(*redis.StringCmd).Val(), fmt.Sprint(n)); err != nil {
			return err
		}
	}
	return nil
}

func pipelinedLong(s *suite) error {
	long := strings.Repeat("five ", 1000)
	replies, err := s.client.Pipelined(s.ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(s.ctx, "long:p", long, 0)
		pipe.Get(s.ctx, "long:p")
		return nil
	})
	if err != nil {
		return err
	}
	return equal(replies[1].(*redis.StringCmd).Val(), long)
}

func watch(s *suite) error {
	add := func(tx *redis.Tx) error {
		n, err := tx.Get(s.ctx, "watch:n").Int()
		if err != nil && err != redis.Nil {
			return err
		}
		_, err = tx.TxPipelined(s.ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(s.ctx, "watch:n", n+1, 0)
			return nil
		})
		return err
	}
	if err := s.client.Set(s.ctx, "watch:n", 0, 0).Err(); err != nil {
		return err
	}
	failures := make([]error, 4)
	var group sync.WaitGroup
	for thread := range failures {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 10 {
				err := s.client.Watch(s.ctx, add, "watch:n")
				for errors.Is(err, redis.TxFailedErr) {
					err = s.client.Watch(s.ctx, add, "watch:n")
				}
				failures[thread] = first(failures[thread], err)
			}
		}()
	}
	group.Wait()
	n, err := s.client.Get(s.ctx, "watch:n").Int()
	return first(append(failures, err, equal(n, 40))...)
}

func script(s *suite) error {
	limit := redis.NewScript(`local n = redis.call('INCR', KEYS[1])
if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return {n, redis.call('PTTL', KEYS[1])}`)
	for n := int64(1); n <= 3; n++ {
		reply, err := limit.Run(s.ctx, s.client, []string{"script:n"}, 60000).Int64Slice()
		if err != nil {
			return err
		}
		if reply[0] != n || reply[1] <= 0 || reply[1] > 60000 {
			return fmt.Errorf("%v", reply)
		}
	}
	return nil
}

func hashes(s *suite) error {
	type person struct {
		Name string `redis:"name"`
		Age  int    `redis:"age"`
	}
	ada := person{"Ada", 36}
	var is person
	set := s.client.HSet(s.ctx, "hash:ada", ada).Err()
	increased := s.client.HIncrBy(s.ctx, "hash:ada", "age", 1)
	got := s.client.HGetAll(s.ctx, "hash:ada").Scan(&is)
	fields, _, scanned := s.client.HScan(s.ctx, "hash:ada", 0, "a*", 10).Result()
	return first(set, increased.Err(), got, scanned, equal(is, person{"Ada", 37}), equal(fields, []string{"age", "37"}))
}

func subscribe(s *suite) error {
	listener := s.client.Subscribe(s.ctx, "news")
	defer listener.Close()
	if _, err := listener.Receive(s.ctx); err != nil {
		return err
	}
	if err := listener.PSubscribe(s.ctx, "new*"); err != nil {
		return err
	}
	if _, err := listener.Receive(s.ctx); err != nil {
		return err
	}
	told := s.client.Publish(s.ctx, "news", "hello")
	if err := first(told.Err(), equal(told.Val(), int64(2))); err != nil {
		return err
	}
	patterns := []string{}
	for range 2 {
		select {
		case message := <-listener.Channel():
			if err := equal(message.Payload, "hello"); err != nil {
				return err
			}
			patterns = append(patterns, message.Pattern)
		case <-time.After(5 * time.Second):
			return fmt.Errorf("no message, after %v", patterns)
		}
	}
	sort.Strings(patterns)
	return equal(patterns, []string{"", "new*"})
}

func scan(s *suite) error {
	for n := range 300 {
		if err := s.client.Set(s.ctx, fmt.Sprintf("scan:%d", n), n, 0).Err(); err != nil {
			return err
		}
	}
	found := map[string]bool{}
	iterator := s.client.Scan(s.ctx, 0, "scan:*", 50).Iterator()
	for iterator.Next(s.ctx) {
		found[iterator.Val()] = true
	}
	return first(iterator.Err(), equal(len(found), 300))
}

func expiry(s *suite) error {
	set := s.client.SetArgs(s.ctx, "s:a", "one", redis.SetArgs{Mode: "NX", TTL: time.Minute})
	again := s.client.SetArgs(s.ctx, "s:a", "two", redis.SetArgs{Mode: "NX"})
	got := s.client.GetEx(s.ctx, "s:a", time.Hour)
	left := s.client.TTL(s.ctx, "s:a")
	if again.Err() != redis.Nil {
		return fmt.Errorf("set again: %v", again)
	}
	if left.Val() <= time.Minute || left.Val() > time.Hour {
		return fmt.Errorf("time to live %v", left.Val())
	}
	return first(set.Err(), got.Err(), equal(got.Val(), "one"))
}
