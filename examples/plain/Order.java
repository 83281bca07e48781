import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.UUID;

public class Order {
    static final String UPDATE = "UPDATE orders SET status = 'PAID', version = ? WHERE id = ?";
    static final String INSERT =
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload)"
            + " VALUES (?, 'order', ?, ?, 'OrderPaid', 'orders', ?)";

    static String pay(Connection connection, String orderId, long version) throws SQLException {
        String eventId = UUID.randomUUID().toString();
        connection.setAutoCommit(false);
        try (PreparedStatement update = connection.prepareStatement(UPDATE);
                PreparedStatement insert = connection.prepareStatement(INSERT)) {
            update.setLong(1, version);
            update.setString(2, orderId);
            update.executeUpdate();
            insert.setString(1, eventId);
            insert.setString(2, orderId);
            insert.setLong(3, version);
            insert.setBytes(4, ("{\"orderId\":\"" + orderId + "\"}").getBytes(StandardCharsets.UTF_8));
            insert.executeUpdate();
            connection.commit();
        } catch (SQLException failed) {
            connection.rollback();
            throw failed;
        }
        return eventId;
    }

    public static void main(String[] args) throws SQLException {
        try (Connection connection = DriverManager.getConnection(args[0])) {
            System.out.println(pay(connection, args[1], Long.parseLong(args[2])));
        }
    }
}
