// Writes the partition, of 12, that Apache Kafka's own client chooses for each
// line of its input, and the line:
//   java -cp 'JARS/*' Partitions.java <KEYS >partitions_of_12.tsv
// JARS is the folder that WAYBILL_ENV_KAFKA4_JARS names after "test/env/env up kafka4".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Partitions {
  public static void main(String[] args) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String key; (key = in.readLine()) != null; ) {
      out.println(BuiltInPartitioner.partitionForKey(key.getBytes(StandardCharsets.UTF_8), 12) + "\t" + key);
    }
    out.flush();
  }
}
